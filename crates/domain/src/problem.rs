//! The errors of the API: the table of codes, and every message in both languages.
//!
//! A message says what happened and what to do next. Internal causes go to the log, never into the body.

use crate::event::EVENT_RETENTION_DAYS;
use crate::lang::{Lang, LocalizedText};
use crate::plan::Plan;
use crate::route::MAX_URL_BYTES;
use crate::webhook::MAX_WEBHOOKS_PER_KEY;

/// The values of `error`. New ones may be added, so clients fall back to the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    BadRequest,
    Unauthorized,
    InvalidApiKey,
    UpgradeRequired,
    NotFound,
    MethodNotAllowed,
    CursorExpired,
    RateLimited,
    InternalError,
    DataUnavailable,
    ServiceUnavailable,
    Overloaded,
}

impl ErrorCode {
    pub const ALL: [Self; 12] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::InvalidApiKey,
        Self::UpgradeRequired,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::CursorExpired,
        Self::RateLimited,
        Self::InternalError,
        Self::DataUnavailable,
        Self::ServiceUnavailable,
        Self::Overloaded,
    ];

    /// The value of `error`, the status, and the description in the documentation.
    const fn definition(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::BadRequest => (
                "bad_request",
                400,
                "invalid parameter, field or body; also a body or URL that is too long, an unsupported content type, or two different keys",
            ),
            Self::Unauthorized => ("unauthorized", 401, "the endpoint requires an API key and none was sent"),
            Self::InvalidApiKey => ("invalid_api_key", 401, "the key is unknown, malformed, expired or revoked"),
            Self::UpgradeRequired => (
                "upgrade_required",
                403,
                "the request requires a higher plan; the response has `current_plan`, `required_plan` and `upgrade_url`",
            ),
            Self::NotFound => {
                ("not_found", 404, "no such path or resource, or no value on or before the requested date")
            }
            Self::MethodNotAllowed => {
                ("method_not_allowed", 405, "the path does not support this method; `Allow` lists the supported ones")
            }
            Self::CursorExpired => ("cursor_expired", 410, "the events after this cursor have been deleted"),
            Self::RateLimited => (
                "rate_limited",
                429,
                "the rate limit, or the daily limit on new keys or key changes, is exceeded; the response has `retry_after`",
            ),
            Self::InternalError => ("internal_error", 500, "an unexpected error in the service"),
            Self::DataUnavailable => {
                ("data_unavailable", 503, "the data has not been loaded yet; the response has `retry_after`")
            }
            Self::ServiceUnavailable => (
                "service_unavailable",
                503,
                "a backend that the request needs is temporarily unavailable; the response has `retry_after`",
            ),
            Self::Overloaded => ("overloaded", 503, "the service is overloaded; the response has `retry_after`"),
        }
    }

    pub const fn id(self) -> &'static str {
        self.definition().0
    }

    pub const fn status(self) -> u16 {
        self.definition().1
    }

    pub const fn description(self) -> &'static str {
        self.definition().2
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// An invalid query parameter. `requirement` completes a sentence that begins with the name: "must be …".
    BadParameter {
        name: &'static str,
        requirement: LocalizedText,
    },
    /// A query parameter that the route does not accept. Ignoring a misspelled filter would return unfiltered data.
    UnknownParameter {
        name: String,
        /// The most similar name that the route accepts.
        suggestion: Option<&'static str>,
        accepted: Vec<&'static str>,
    },
    /// An API key in the URL, where it ends up in logs and browser histories. Never contains the key.
    KeyInQuery {
        /// `None` if the name itself looks like a key.
        name: Option<String>,
    },
    /// An invalid body field. `requirement` as above.
    BadField {
        name: &'static str,
        requirement: LocalizedText,
    },
    /// A body that is not a JSON object, is too long, or has another content type.
    BadBody(LocalizedText),
    /// A parameter with an unknown series id.
    UnknownSeriesId {
        name: &'static str,
        id: String,
    },
    /// An unsupported currency pair, with the list of published pairs.
    UnknownPair {
        published_pairs: String,
    },
    UrlTooLong,
    /// A request from a page of another website, to a route that only the service's own pages may call.
    ForeignOrigin,
    ConflictingKeys,
    KeyRequired,
    InvalidKey,
    UpgradeRequired {
        current: Plan,
        required: Plan,
        has_key: bool,
    },
    NoSuchPath,
    NoSuchCompany,
    /// Several companies have the ticker in the path.
    AmbiguousTicker,
    NoSuchFiling,
    /// The filing is no annual or quarterly financial statement.
    NoStatements,
    NoSuchSeries,
    /// The values of this series are not rates, or already cover several months, so multiplying them would be wrong.
    NotAccumulable {
        id: &'static str,
        instead: Option<&'static str>,
    },
    NoSuchExport,
    NoSuchWebhook,
    NoSuchDelivery,
    TooManyWebhooks,
    /// The webhook is paused or disabled, so nothing is sent to it.
    WebhookNotActive,
    /// The requested range starts beyond the end of the file.
    RangeNotSatisfiable {
        file_size: u64,
    },
    /// Every value is newer than the requested date; `first_date` is the date of the oldest.
    NoValueOnOrBefore {
        first_date: String,
    },
    MethodNotAllowed,
    CursorExpired,
    RateLimited {
        retry_after_seconds: u64,
    },
    TooManyPageViews {
        retry_after_seconds: u64,
    },
    TooManyRegistrations {
        retry_after_seconds: u64,
    },
    TooManyKeyChanges {
        retry_after_seconds: u64,
    },
    Internal,
    DatasetNotLoaded {
        dataset: &'static str,
    },
    DependencyUnavailable,
    /// Load shedding: too many requests are in flight.
    Overloaded,
}

impl Problem {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::BadParameter { .. }
            | Self::UnknownParameter { .. }
            | Self::KeyInQuery { .. }
            | Self::BadField { .. }
            | Self::BadBody(_)
            | Self::UnknownPair { .. }
            | Self::UnknownSeriesId { .. }
            | Self::UrlTooLong
            | Self::ForeignOrigin
            | Self::NotAccumulable { .. }
            | Self::RangeNotSatisfiable { .. }
            | Self::TooManyWebhooks
            | Self::WebhookNotActive
            | Self::ConflictingKeys => ErrorCode::BadRequest,
            Self::KeyRequired => ErrorCode::Unauthorized,
            Self::InvalidKey => ErrorCode::InvalidApiKey,
            Self::UpgradeRequired { .. } => ErrorCode::UpgradeRequired,
            Self::NoSuchPath
            | Self::NoSuchCompany
            | Self::AmbiguousTicker
            | Self::NoSuchFiling
            | Self::NoStatements
            | Self::NoSuchSeries
            | Self::NoSuchExport
            | Self::NoSuchWebhook
            | Self::NoSuchDelivery
            | Self::NoValueOnOrBefore { .. } => ErrorCode::NotFound,
            Self::MethodNotAllowed => ErrorCode::MethodNotAllowed,
            Self::CursorExpired => ErrorCode::CursorExpired,
            Self::RateLimited { .. }
            | Self::TooManyPageViews { .. }
            | Self::TooManyRegistrations { .. }
            | Self::TooManyKeyChanges { .. } => ErrorCode::RateLimited,
            Self::Internal => ErrorCode::InternalError,
            Self::DatasetNotLoaded { .. } => ErrorCode::DataUnavailable,
            Self::DependencyUnavailable => ErrorCode::ServiceUnavailable,
            Self::Overloaded => ErrorCode::Overloaded,
        }
    }

    /// The status of its code, except 416, which tools that resume a download look for.
    pub const fn status(&self) -> u16 {
        match self {
            Self::RangeNotSatisfiable { .. } => 416,
            _ => self.code().status(),
        }
    }

    /// Whether the problem is an invalid query parameter.
    pub const fn is_about_parameter(&self) -> bool {
        matches!(
            self,
            Self::BadParameter { .. }
                | Self::UnknownParameter { .. }
                | Self::KeyInQuery { .. }
                | Self::UnknownPair { .. }
                | Self::UnknownSeriesId { .. }
        )
    }

    /// The name of the invalid query parameter, if it may be shown.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            Self::BadParameter { name, .. } | Self::UnknownSeriesId { name, .. } => Some(name),
            Self::UnknownParameter { name, .. } => Some(name),
            Self::KeyInQuery { name } => name.as_deref(),
            Self::UnknownPair { .. } => Some("pair"),
            _ => None,
        }
    }

    /// When to retry the same request, if waiting helps.
    pub const fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_seconds }
            | Self::TooManyPageViews { retry_after_seconds }
            | Self::TooManyRegistrations { retry_after_seconds }
            | Self::TooManyKeyChanges { retry_after_seconds } => Some(*retry_after_seconds),
            // A first load takes minutes, a restart of a dependency seconds.
            Self::DatasetNotLoaded { .. } => Some(60),
            Self::DependencyUnavailable => Some(2),
            // Requests in flight are answered within a fraction of a second.
            Self::Overloaded => Some(1),
            _ => None,
        }
    }

    pub fn message(&self, lang: Lang) -> String {
        match lang {
            Lang::En => self.english_message(),
            Lang::Pt => self.portuguese_message(),
        }
    }

    /// Which limit a caller has reached.
    fn reached_limit(&self) -> LocalizedText {
        match self {
            Self::TooManyPageViews { .. } => LocalizedText::new(
                "Too many page requests from this IP address. Your API quota is not affected.",
                "Este endereço IP acessou páginas demais. Isso não afeta o seu limite de requisições à API.",
            ),
            Self::TooManyRegistrations { .. } => LocalizedText::new(
                "This IP address or email has reached its daily limit for new keys.",
                "Este endereço IP ou e-mail atingiu o limite diário de novas chaves.",
            ),
            Self::TooManyKeyChanges { .. } => LocalizedText::new(
                "This key has reached its daily limit for changes.",
                "Esta chave atingiu o limite diário de alterações.",
            ),
            _ => LocalizedText::new(
                "Too many requests: you exceeded the rate limit of your plan.",
                "Você excedeu o limite de requisições do seu plano.",
            ),
        }
    }

    fn english_message(&self) -> String {
        match self {
            Self::BadParameter { name, requirement } => format!("`{name}` {}.", requirement.en),
            Self::UnknownParameter { name, suggestion, accepted } => unknown_parameter_en(name, *suggestion, accepted),
            Self::KeyInQuery { .. } => "Send the API key in the `X-API-Key` header, not in the URL: URLs end up in logs and browser histories. If the key is real, rotate it.".into(),
            Self::BadField { name, requirement } => format!("`{name}` {}.", requirement.en),
            Self::BadBody(text) => text.en.to_owned(),
            Self::UnknownPair { published_pairs } => format!(
                "`pair` is not a supported currency pair. Supported: {published_pairs}, their inverses (such as BRL/USD) and crosses (such as EUR/USD)."
            ),
            Self::UnknownSeriesId { name, id } => {
                format!("`{name}` contains an unknown series ID: `{id}`. See /api/v1/market/series for all IDs.")
            }
            Self::UrlTooLong => format!("The URL is longer than {MAX_URL_BYTES} bytes. Shorten its parameters."),
            Self::ForeignOrigin => "Other websites cannot call this endpoint from a browser. Call it from your server, or use the form on our website.".into(),
            Self::ConflictingKeys => "`X-API-Key` and `Authorization` contain different keys. Send only one.".into(),
            Self::KeyRequired => "API key required".into(),
            Self::InvalidKey => "Invalid API key: it is unknown, malformed, expired or revoked. Check it, or omit it to use the Free plan.".into(),
            Self::UpgradeRequired { current, required, has_key: true } => format!(
                "This request requires the {} plan. Your API key is valid, but it is on the {} plan. To upgrade, see `upgrade_url`.",
                required.name(),
                current.name()
            ),
            Self::UpgradeRequired { required, .. } => format!(
                "This request requires an API key on the {} plan. Without a key, you are on the Free plan. To upgrade, see `upgrade_url`.",
                required.name()
            ),
            Self::NoSuchPath => "This path does not exist. The API reference is at /docs.".into(),
            Self::NoSuchCompany => {
                "Company not found. Search by name, CVM code, CNPJ or ticker at /api/v1/companies/search.".into()
            }
            Self::AmbiguousTicker => "Several companies share this ticker. Use a CVM code or CNPJ instead, or get the most likely company from /api/v1/companies/resolve?ticker=.".into(),
            Self::NoSuchSeries => "Series not found. See /api/v1/market/series for all series.".into(),
            Self::NotAccumulable { id, instead: Some(instead) } => format!("Series `{id}` cannot be accumulated. Accumulate `{instead}` instead."),
            Self::NotAccumulable { id, instead: None } => format!("Series `{id}` cannot be accumulated, because its values are not changes from one period to the next. Compare two of them instead."),
            Self::NoValueOnOrBefore { first_date } => {
                format!("No value on or before this date. The first value is from {first_date}.")
            }
            Self::NoSuchExport => "Export file not found. See /api/v1/export for the available files.".into(),
            Self::NoSuchWebhook => "Webhook not found. See /api/v1/webhooks for the webhooks of your key.".into(),
            Self::NoSuchDelivery => format!("Delivery not found. Deliveries are deleted after {EVENT_RETENTION_DAYS} days. See /api/v1/webhooks/{{id}}/deliveries for the list."),
            Self::TooManyWebhooks => {
                format!("Your key already has {MAX_WEBHOOKS_PER_KEY} webhooks, the maximum. Delete one first.")
            }
            Self::WebhookNotActive => "This webhook is paused or disabled. Set its `status` to `active` first.".into(),
            Self::RangeNotSatisfiable { file_size } => {
                format!("The requested range is outside the file, which has {file_size} bytes.")
            }
            Self::NoSuchFiling => "Filing not found. Search at /api/v1/filings/search.".into(),
            Self::NoStatements => "This filing has no financial statements. Only annual (`dfp-…`) and quarterly (`itr-…`) filings do; find them at /api/v1/companies/{id}/statements/periods.".into(),
            Self::MethodNotAllowed => "This path does not support this method. `Allow` lists the supported ones.".into(),
            Self::CursorExpired => format!("This cursor has expired: events are deleted after {EVENT_RETENTION_DAYS} days. Start again without `after`, and read the data that you missed from the list endpoints."),
            Self::RateLimited { retry_after_seconds }
            | Self::TooManyPageViews { retry_after_seconds }
            | Self::TooManyRegistrations { retry_after_seconds }
            | Self::TooManyKeyChanges { retry_after_seconds } => {
                format!("{} Retry in {}.", self.reached_limit().en, format_seconds_en(*retry_after_seconds))
            }
            Self::Internal => "Internal error. Retry the request. If the error persists, report the `request_id`.".into(),
            Self::DatasetNotLoaded { dataset } => {
                format!("The data for `{dataset}` has not been loaded yet. Retry later.")
            }
            Self::DependencyUnavailable => {
                "A backend that this request needs is temporarily unavailable. Retry in a few seconds.".into()
            }
            Self::Overloaded => "The service is overloaded. Retry in 1 second, then back off.".into(),
        }
    }

    fn portuguese_message(&self) -> String {
        match self {
            Self::BadParameter { name, requirement } => format!("O parâmetro `{name}` {}.", requirement.pt),
            Self::UnknownParameter { name, suggestion, accepted } => unknown_parameter_pt(name, *suggestion, accepted),
            Self::KeyInQuery { .. } => "Envie a chave de API no cabeçalho `X-API-Key`, não na URL: as URLs ficam em logs e no histórico do navegador. Se a chave for real, troque o segredo dela.".into(),
            Self::BadField { name, requirement } => format!("O campo `{name}` {}.", requirement.pt),
            Self::BadBody(text) => text.pt.to_owned(),
            Self::UnknownPair { published_pairs } => format!(
                "O parâmetro `pair` não contém um par de moedas disponível. Pares disponíveis: {published_pairs}, seus inversos (como BRL/USD) e pares cruzados (como EUR/USD)."
            ),
            Self::UnknownSeriesId { name, id } => format!("O parâmetro `{name}` contém um ID de série desconhecido: `{id}`. Veja todos os IDs em /api/v1/market/series."),
            Self::UrlTooLong => format!("A URL tem mais de {MAX_URL_BYTES} bytes. Encurte os parâmetros."),
            Self::ForeignOrigin => "Outros sites não podem chamar este endpoint pelo navegador. Chame-o do seu servidor ou use o formulário do nosso site.".into(),
            Self::ConflictingKeys => "`X-API-Key` e `Authorization` contêm chaves diferentes. Envie apenas uma.".into(),
            Self::KeyRequired => "Chave de API obrigatória".into(),
            Self::InvalidKey => "Chave de API inválida: desconhecida, malformada, expirada ou revogada. Confira a chave ou remova-a para usar o plano Free.".into(),
            Self::UpgradeRequired { current, required, has_key: true } => format!(
                "Esta requisição exige o plano {}. Sua chave de API é válida, mas está no plano {}. Para mudar de plano, veja `upgrade_url`.",
                required.name(),
                current.name()
            ),
            Self::UpgradeRequired { required, .. } => format!(
                "Esta requisição exige uma chave de API do plano {}. Sem chave, você usa o plano Free. Para mudar de plano, veja `upgrade_url`.",
                required.name()
            ),
            Self::NoSuchPath => "Este caminho não existe. A referência da API está em /docs.".into(),
            Self::NoSuchCompany => "Companhia não encontrada. Busque por nome, código CVM, CNPJ ou ticker em /api/v1/companies/search.".into(),
            Self::AmbiguousTicker => "Mais de uma companhia usa este ticker. Use o código CVM ou o CNPJ, ou consulte a companhia mais provável em /api/v1/companies/resolve?ticker=.".into(),
            Self::NoSuchSeries => "Série não encontrada. Veja todas as séries em /api/v1/market/series.".into(),
            Self::NotAccumulable { id, instead: Some(instead) } => {
                format!("A série `{id}` não pode ser acumulada. Acumule `{instead}`.")
            }
            Self::NotAccumulable { id, instead: None } => format!("A série `{id}` não pode ser acumulada, porque seus valores não são variações de um período para o outro. Compare dois deles."),
            Self::NoValueOnOrBefore { first_date } => {
                format!("Não há valor nesta data nem antes dela. O primeiro valor é de {first_date}.")
            }
            Self::NoSuchExport => "Arquivo não encontrado. Veja os arquivos disponíveis em /api/v1/export.".into(),
            Self::NoSuchWebhook => "Webhook não encontrado. Veja os webhooks da sua chave em /api/v1/webhooks.".into(),
            Self::NoSuchDelivery => format!("Entrega não encontrada. As entregas são apagadas após {EVENT_RETENTION_DAYS} dias. Veja a lista em /api/v1/webhooks/{{id}}/deliveries."),
            Self::TooManyWebhooks => {
                format!("Sua chave já tem {MAX_WEBHOOKS_PER_KEY} webhooks, que é o máximo. Exclua um antes de criar outro.")
            }
            Self::WebhookNotActive => {
                "Este webhook está pausado ou desativado. Mude o `status` dele para `active` e tente de novo.".into()
            }
            Self::RangeNotSatisfiable { file_size } => {
                format!("O intervalo solicitado está fora do arquivo, que tem {file_size} bytes.")
            }
            Self::NoSuchFiling => "Documento não encontrado. Busque em /api/v1/filings/search.".into(),
            Self::NoStatements => "Este documento não tem demonstrações financeiras. Só os anuais (`dfp-…`) e trimestrais (`itr-…`) têm; veja /api/v1/companies/{id}/statements/periods.".into(),
            Self::MethodNotAllowed => {
                "Este caminho não aceita este método. O cabeçalho `Allow` lista os métodos aceitos.".into()
            }
            Self::CursorExpired => format!("Este cursor expirou: os eventos são apagados após {EVENT_RETENTION_DAYS} dias. Recomece sem `after` e consulte nas listas os dados que você perdeu."),
            Self::RateLimited { retry_after_seconds }
            | Self::TooManyPageViews { retry_after_seconds }
            | Self::TooManyRegistrations { retry_after_seconds }
            | Self::TooManyKeyChanges { retry_after_seconds } => {
                format!("{} Tente de novo em {}.", self.reached_limit().pt, format_seconds_pt(*retry_after_seconds))
            }
            Self::Internal => "Erro interno. Tente de novo. Se o erro persistir, informe o `request_id`.".into(),
            Self::DatasetNotLoaded { dataset } => {
                format!("Os dados de `{dataset}` ainda não foram carregados. Tente de novo mais tarde.")
            }
            Self::DependencyUnavailable => "Um componente interno necessário para esta requisição está temporariamente indisponível. Tente de novo em alguns segundos.".into(),
            Self::Overloaded => "O serviço está sobrecarregado. Tente de novo em 1 segundo e aumente o intervalo a cada tentativa.".into(),
        }
    }
}

fn unknown_parameter_en(name: &str, suggestion: Option<&str>, accepted: &[&str]) -> String {
    let suggestion = suggestion.map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default();
    let accepted = match list_names(accepted) {
        Some(names) => format!(" This endpoint accepts {names}."),
        None => " This endpoint accepts no parameters.".into(),
    };
    format!("Unknown parameter `{name}`.{suggestion}{accepted}")
}

fn unknown_parameter_pt(name: &str, suggestion: Option<&str>, accepted: &[&str]) -> String {
    let suggestion = suggestion.map(|name| format!(" Você quis dizer `{name}`?")).unwrap_or_default();
    let accepted = match list_names(accepted) {
        Some(names) => format!(" Este endpoint aceita {names}."),
        None => " Este endpoint não aceita parâmetros.".into(),
    };
    format!("Parâmetro desconhecido: `{name}`.{suggestion}{accepted}")
}

/// The names in backticks, separated by commas.
fn list_names(names: &[&str]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    (!quoted.is_empty()).then(|| quoted.join(", "))
}

fn format_seconds_en(seconds: u64) -> String {
    if seconds == 1 { "1 second".into() } else { format!("{seconds} seconds") }
}

fn format_seconds_pt(seconds: u64) -> String {
    if seconds == 1 { "1 segundo".into() } else { format!("{seconds} segundos") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_unique() {
        for (index, code) in ErrorCode::ALL.iter().enumerate() {
            assert!(ErrorCode::ALL[index + 1..].iter().all(|other| other.id() != code.id()));
        }
    }

    #[test]
    fn an_upgrade_message_names_the_plan_and_says_the_key_is_valid() {
        let problem = Problem::UpgradeRequired { current: Plan::Free, required: Plan::Gold, has_key: true };
        assert!(problem.message(Lang::En).contains("valid") && problem.message(Lang::En).contains("Gold"));
        assert!(problem.message(Lang::Pt).contains("válida") && problem.message(Lang::Pt).contains("Gold"));
    }
}
