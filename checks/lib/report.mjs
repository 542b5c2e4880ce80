// Shared by the JavaScript checks: runs each assertion on its own and collects the failures for the end.

/** Figures to print, by name. */
export const figures = {};
export const failures = [];

/** Runs `run` and returns its result; an exception is recorded as a failure of `label`. */
export async function check(label, run) {
  try {
    return await run();
  } catch (error) {
    // The first lines of an assertion are enough; a whole response would hide the next failure.
    const message = String(error.message ?? error).split("\n").slice(0, 12).join("\n  ");
    failures.push(`fails: ${label}: ${message.slice(0, 1200)}`);
  }
}
