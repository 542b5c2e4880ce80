// Renders the API reference at /docs from our OpenAPI file, with our own code samples and the key stored in this tab.
// The options turn off everything that would call other hosts: fonts, telemetry, the assistant, Scalar's hosted client.
"use strict";

(() => {
  /** Scalar sends every parameter that has an example. Optional ones are suggested, but not enabled. */
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

  /** Returns nothing without a key: market data needs none. */
  const withKey = (key) =>
    key && { preferredSecurityScheme: "ApiKeyHeader", securitySchemes: { ApiKeyHeader: { value: key } } };

  const start = async () => {
    const app = document.getElementById("app");
    const key = vintem.key();
    const description = await (await fetch(app.dataset.openapiUrl)).json();
    const theme = () => {
      document.body.classList.toggle("dark-mode", vintem.isDark());
      document.body.classList.toggle("light-mode", !vintem.isDark());
    };
    Scalar.createApiReference("#app", {
      content: sendOnlyWhatIsNeeded(vintemSamples(description, app.dataset.publicUrl, key)),
      // Send test requests to the host that served the page, whatever its name is.
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
