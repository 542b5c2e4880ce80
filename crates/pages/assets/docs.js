// Draws the API reference of /docs from our own OpenAPI file, with our own code samples and the key stored in this tab.
// Every option here keeps the page from calling other hosts: fonts, telemetry, the assistant, the client on Scalar's own
// site.
"use strict";

(() => {
  /** Scalar sends every parameter that has an example. Those that may be left out are proposed, and not ticked. */
  const sendOnlyWhatIsNeeded = (description) => {
    const all = Object.values(description.paths).flatMap((path) => [path, ...Object.values(path)]);
    const listed = all.flatMap((one) => one.parameters ?? []).filter((one) => !one.$ref);
    for (const parameter of [...Object.values(description.components.parameters), ...listed]) {
      if (!parameter.required && parameter.example !== undefined) {
        parameter.examples = { default: { value: parameter.example, "x-disabled": true } };
        delete parameter.example;
      }
    }
    return description;
  };

  /** Without a key none is sent: market data needs none. */
  const withKey = (key) =>
    key && { preferredSecurityScheme: "ApiKeyHeader", securitySchemes: { ApiKeyHeader: { value: key } } };

  const start = async () => {
    const app = document.getElementById("app");
    const key = vintem.key();
    const description = await (await fetch("/docs/openapi.json")).json();
    const theme = () => {
      document.body.classList.toggle("dark-mode", vintem.isDark());
      document.body.classList.toggle("light-mode", !vintem.isDark());
    };
    Scalar.createApiReference("#app", {
      content: sendOnlyWhatIsNeeded(vintemSamples(description, app.dataset.publicUrl, key)),
      // What is tried goes to where the page came from, whatever name it is known by.
      baseServerURL: location.origin,
      servers: [{ url: location.origin }],
      authentication: withKey(key) ?? {},
      hiddenClients: true,
      withDefaultFonts: false,
      telemetry: false,
      agent: { disabled: true },
      mcp: { disabled: true },
      hideClientButton: true,
      hideDarkModeToggle: true,
      showDeveloperTools: "never",
      forceDarkModeState: vintem.isDark() ? "dark" : "light",
      localization: { locale: document.documentElement.lang === "pt-BR" ? "pt" : "en" },
    });
    theme();
    document.addEventListener("vintem-theme", theme);
  };

  start();
})();
