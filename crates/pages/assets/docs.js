// Draws the API reference of /docs from our own OpenAPI file, with our own snippets, and with the key that this tab
// knows. Every option here keeps the page from asking another host for anything: fonts, telemetry, the assistant, the
// client of Scalar's own site.
"use strict";

(async () => {
  const app = document.getElementById("app");
  const key = vintem.key();
  const description = await (await fetch("/docs/openapi.json")).json();
  const theme = () => {
    document.body.classList.toggle("dark-mode", vintem.isDark());
    document.body.classList.toggle("light-mode", !vintem.isDark());
  };
  Scalar.createApiReference("#app", {
    content: vintemSamples(description, app.dataset.publicUrl, key),
    // What is tried goes to where the page came from, whatever name it is known by.
    baseServerURL: location.origin,
    servers: [{ url: location.origin }],
    authentication: {
      preferredSecurityScheme: "ApiKeyHeader",
      securitySchemes: { ApiKeyHeader: { value: key || "" } },
    },
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
})();
