// What checks in JavaScript share: each thing that must hold is tried by itself, and what does not hold is told at the end.

/** What was counted, by name; and what did not hold. */
export const figures = {};
export const failures = [];

export async function holds(what, check) {
  try {
    return await check();
  } catch (error) {
    // Of an assertion the first lines say enough; a whole answer would hide the next failure.
    const said = String(error.message ?? error).split("\n").slice(0, 12).join("\n  ");
    failures.push(`fails: ${what}: ${said.slice(0, 1200)}`);
  }
}
