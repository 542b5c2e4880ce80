// Draws the API reference of /docs from our own OpenAPI file. Every option here keeps the page from asking
// another host for anything: fonts, telemetry, the assistant, the client of Scalar's own site.
"use strict";

Scalar.createApiReference("#app", {
  url: "/docs/openapi.yaml",
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: "never",
  localization: { locale: document.documentElement.lang === "pt-BR" ? "pt" : "en" },
});
