//! Every error that a caller can get: one table of codes, and each message in both languages.
//!
//! A message says what to do next. Internal causes go to the log, never into the body.

use crate::event::EVENT_RETENTION_DAYS;
use crate::lang::{Lang, LocalizedText};
use crate::plan::Plan;
use crate::route::MAX_URL_BYTES;
use crate::webhook::MAX_WEBHOOKS_PER_KEY;

/// The closed list of values of `error`.
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
                "a parameter, field, body or pair of keys that cannot be read; also a body or an address that is too long, or another content type",
            ),
            Self::Unauthorized => ("unauthorized", 401, "a key is needed and none was sent"),
            Self::InvalidApiKey => ("invalid_api_key", 401, "the key is unknown, malformed, expired or revoked"),
            Self::UpgradeRequired => (
                "upgrade_required",
                403,
                "the plan does not include this; with `current_plan`, `required_plan` and `upgrade_url`",
            ),
            Self::NotFound => {
                ("not_found", 404, "no such company, filing, series or path, or no value as old as asked for")
            }
            Self::MethodNotAllowed => ("method_not_allowed", 405, "the path takes other methods: see `Allow`"),
            Self::CursorExpired => ("cursor_expired", 410, "the events after this cursor are not kept any more"),
            Self::RateLimited => (
                "rate_limited",
                429,
                "too many requests, or too many new keys or changes of a key for a day; with `retry_after`",
            ),
            Self::InternalError => ("internal_error", 500, "our fault"),
            Self::DataUnavailable => ("data_unavailable", 503, "the data was never loaded; with `retry_after`"),
            Self::ServiceUnavailable => {
                ("service_unavailable", 503, "an engine that the request needs is away; with `retry_after`")
            }
            Self::Overloaded => {
                ("overloaded", 503, "more requests at once than we can answer in good time; with `retry_after`")
            }
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
    /// A query parameter that cannot be read. `requirement` completes the sentence "`name` must …".
    BadParameter {
        name: &'static str,
        requirement: LocalizedText,
    },
    /// A query parameter that the route does not take. A misspelled filter must never get other data than was meant.
    UnknownParameter {
        name: String,
        /// The most similar name that the route takes.
        suggestion: Option<&'static str>,
        accepted: Vec<&'static str>,
    },
    /// An API key in the URL, where logs and browser histories keep it. Never holds the key.
    KeyInQuery {
        /// `None` if the name itself looks like a key.
        name: Option<String>,
    },
    /// A body field that cannot be accepted. `requirement` as above.
    BadField {
        name: &'static str,
        requirement: LocalizedText,
    },
    /// A body that is not a JSON object, too long, or of another content type.
    BadBody(LocalizedText),
    /// A parameter with the id of a series that does not exist.
    UnknownSeriesId {
        name: &'static str,
        id: String,
    },
    /// A currency pair that we do not carry, with those that we do.
    UnknownPair {
        published_pairs: String,
    },
    UrlTooLong,
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
    NoSuchSeries,
    /// The values of this series already cover several months, so multiplying them would be wrong.
    NotAccumulable {
        id: &'static str,
        instead: &'static str,
    },
    NoSuchExport,
    NoSuchWebhook,
    NoSuchDelivery,
    TooManyWebhooks,
    /// The webhook is paused or disabled, so nothing is sent to it.
    WebhookNotActive,
    /// The requested range lies beyond the end of the file.
    RangeNotSatisfiable {
        file_size: u64,
    },
    /// Every value is newer than the requested day; `first_date` is the oldest.
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
    /// Load shedding: more requests are in flight than can be answered in time.
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

    /// Whether a query parameter was refused.
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

    /// The query parameter that was refused, if it has a name that may be shown.
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

    fn english_message(&self) -> String {
        match self {
            Self::BadParameter { name, requirement } => format!("Parameter `{name}` must {}.", requirement.en),
            Self::UnknownParameter { name, suggestion, accepted } => {
                let suggestion = suggestion.map(|name| format!(" Did you mean `{name}`?")).unwrap_or_default();
                let accepted = match list_names(accepted) {
                    Some(names) => format!(" This endpoint takes {names}."),
                    None => " This endpoint takes no parameters.".into(),
                };
                format!("Unknown parameter `{name}`.{suggestion}{accepted}")
            }
            Self::KeyInQuery { .. } => "Send the API key in the `X-API-Key` header, not in the URL: logs and histories keep URLs. If the key was real, rotate it.".into(),
            Self::BadField { name, requirement } => format!("Field `{name}` must {}.", requirement.en),
            Self::BadBody(text) => text.en.to_owned(),
            Self::UnknownPair { published_pairs } => format!(
                "Parameter `pair` names no pair that we carry. Published: {published_pairs}; also their inverses (BRL/USD) and crosses (EUR/USD)."
            ),
            Self::UnknownSeriesId { name, id } => {
                format!("Parameter `{name}` has an unknown series id: `{id}`. /api/v1/market/series lists all ids.")
            }
            Self::UrlTooLong => format!("The address of the request is longer than {MAX_URL_BYTES} bytes. Shorten its parameters."),
            Self::ConflictingKeys => "X-API-Key and Authorization carry two different keys. Send one of them.".into(),
            Self::KeyRequired => "API key required".into(),
            Self::InvalidKey => "The API key is not valid: unknown, malformed, expired or revoked. Check it, or leave it out for the Free plan.".into(),
            Self::UpgradeRequired { current, required, has_key: true } => format!(
                "Your API key is valid, but this needs the {} plan and yours is {}. See upgrade_url.",
                required.name(),
                current.name()
            ),
            Self::UpgradeRequired { required, .. } => format!(
                "Without an API key you are on the Free plan; this needs a key of the {} plan. See upgrade_url.",
                required.name()
            ),
            Self::NoSuchPath => "There is nothing at this path. The reference is at /docs.".into(),
            Self::NoSuchCompany => "No company has this code, CNPJ or ticker. Find it with /api/v1/companies/search.".into(),
            Self::AmbiguousTicker => "Several companies have this ticker. Use the CVM code or CNPJ: /api/v1/companies/resolve?ticker= returns the most likely one.".into(),
            Self::NoSuchSeries => "No series has this id. /api/v1/market/series lists those that there are.".into(),
            Self::NotAccumulable { id, instead } => format!("Series `{id}` cannot be accumulated: each of its values already covers several months. Accumulate `{instead}` instead."),
            Self::NoValueOnOrBefore { first_date } => format!("There is no value on or before this day; the first is of {first_date}."),
            Self::NoSuchExport => "There is no file of this name. /api/v1/export lists those that there are.".into(),
            Self::NoSuchWebhook => "Your key has no webhook of this id. /api/v1/webhooks lists those that it has.".into(),
            Self::NoSuchDelivery => format!("This webhook has no delivery of this id; they are kept for {EVENT_RETENTION_DAYS} days. Its path with /deliveries lists them."),
            Self::TooManyWebhooks => format!("A key has at most {MAX_WEBHOOKS_PER_KEY} webhooks. Delete one that you do not need."),
            Self::WebhookNotActive => "Nothing is sent to this webhook: it is paused or disabled. Set its status to active first.".into(),
            Self::RangeNotSatisfiable { file_size } => format!("The file has {file_size} bytes: nothing of it lies within the range asked for."),
            Self::NoSuchFiling => "No filing has this id. Find it by /api/v1/filings/search.".into(),
            Self::MethodNotAllowed => "This path does not take this method; the Allow header names those it takes.".into(),
            Self::CursorExpired => format!("Events are kept for {EVENT_RETENTION_DAYS} days; this cursor is older. Start again without `after`, and read what you missed from the lists."),
            Self::RateLimited { retry_after_seconds } => {
                format!("Too many requests: the limit of your plan is reached. Try again in {}.", format_seconds_en(*retry_after_seconds))
            }
            Self::TooManyPageViews { retry_after_seconds } => {
                format!("Too many pages from this address; your quota of the API is untouched. Try again in {}.", format_seconds_en(*retry_after_seconds))
            }
            Self::TooManyRegistrations { retry_after_seconds } => {
                format!("Too many new keys for one day from this address or for this e-mail. Try again in {}.", format_seconds_en(*retry_after_seconds))
            }
            Self::TooManyKeyChanges { retry_after_seconds } => {
                format!("Too many changes of this key for one day. Try again in {}.", format_seconds_en(*retry_after_seconds))
            }
            Self::Internal => "Something went wrong on our side. Try again, and tell us the request_id if it stays.".into(),
            Self::DatasetNotLoaded { dataset } => format!("The data of `{dataset}` has not been loaded yet, so there is nothing true to answer. Try again later."),
            Self::DependencyUnavailable => "A part of the service that this request needs is away for the moment. Try again in a few seconds.".into(),
            Self::Overloaded => "We are asked for more than we can answer in good time. Nothing is wrong with the request: try again in a second, then less and less often.".into(),
        }
    }

    fn portuguese_message(&self) -> String {
        match self {
            Self::BadParameter { name, requirement } => format!("O parâmetro `{name}` deve {}.", requirement.pt),
            Self::UnknownParameter { name, suggestion, accepted } => {
                let suggestion = suggestion.map(|name| format!(" Você quis dizer `{name}`?")).unwrap_or_default();
                let accepted = match list_names(accepted) {
                    Some(names) => format!(" Este endpoint aceita {names}."),
                    None => " Este endpoint não aceita parâmetros.".into(),
                };
                format!("Parâmetro desconhecido: `{name}`.{suggestion}{accepted}")
            }
            Self::KeyInQuery { .. } => "Envie a chave de API no cabeçalho `X-API-Key`, não na URL: logs e históricos guardam URLs. Se a chave for verdadeira, troque-a.".into(),
            Self::BadField { name, requirement } => format!("O campo `{name}` deve {}.", requirement.pt),
            Self::BadBody(text) => text.pt.to_owned(),
            Self::UnknownPair { published_pairs } => format!(
                "O parâmetro `pair` não indica um par que oferecemos. Publicados: {published_pairs}; também os inversos (BRL/USD) e os cruzados (EUR/USD)."
            ),
            Self::UnknownSeriesId { name, id } => {
                format!("O parâmetro `{name}` tem um id de série desconhecido: `{id}`. /api/v1/market/series lista todos.")
            }
            Self::UrlTooLong => format!("O endereço da requisição passa de {MAX_URL_BYTES} bytes. Encurte os parâmetros."),
            Self::ConflictingKeys => "X-API-Key e Authorization trazem duas chaves diferentes. Envie só uma delas.".into(),
            Self::KeyRequired => "É necessária uma chave de API".into(),
            Self::InvalidKey => "A chave de API não é válida: desconhecida, malformada, expirada ou revogada. Confira a chave, ou deixe-a de fora para usar o plano Free.".into(),
            Self::UpgradeRequired { current, required, has_key: true } => format!(
                "Sua chave de API é válida, mas isto exige o plano {} e o seu é o {}. Veja upgrade_url.",
                required.name(),
                current.name()
            ),
            Self::UpgradeRequired { required, .. } => format!(
                "Sem chave de API você está no plano Free; isto exige uma chave do plano {}. Veja upgrade_url.",
                required.name()
            ),
            Self::NoSuchPath => "Não há nada neste caminho. A referência está em /docs.".into(),
            Self::NoSuchCompany => "Nenhuma companhia tem este código, CNPJ ou ticker. Procure em /api/v1/companies/search.".into(),
            Self::AmbiguousTicker => "Várias companhias têm este ticker. Use o código CVM ou o CNPJ: /api/v1/companies/resolve?ticker= indica a mais provável.".into(),
            Self::NoSuchSeries => "Nenhuma série tem este id. /api/v1/market/series lista as que existem.".into(),
            Self::NotAccumulable { id, instead } => format!("A série `{id}` não pode ser acumulada: cada valor já abrange vários meses. Acumule `{instead}`."),
            Self::NoValueOnOrBefore { first_date } => format!("Não há valor nesse dia nem antes dele; o primeiro é de {first_date}."),
            Self::NoSuchExport => "Não há arquivo com este nome. /api/v1/export lista os que existem.".into(),
            Self::NoSuchWebhook => "Sua chave não tem webhook com este id. /api/v1/webhooks lista os que ela tem.".into(),
            Self::NoSuchDelivery => format!("Este webhook não tem entrega com este id; elas são guardadas por {EVENT_RETENTION_DAYS} dias. O caminho dele com /deliveries as lista."),
            Self::TooManyWebhooks => format!("Uma chave tem no máximo {MAX_WEBHOOKS_PER_KEY} webhooks. Apague um de que não precise."),
            Self::WebhookNotActive => "Nada é enviado a este webhook: ele está pausado ou desativado. Antes, mude o status para active.".into(),
            Self::RangeNotSatisfiable { file_size } => format!("O arquivo tem {file_size} bytes: nada dele está no intervalo pedido."),
            Self::NoSuchFiling => "Nenhum documento tem este id. Procure em /api/v1/filings/search.".into(),
            Self::MethodNotAllowed => "Este caminho não aceita este método; o cabeçalho Allow diz quais aceita.".into(),
            Self::CursorExpired => format!("Os eventos são guardados por {EVENT_RETENTION_DAYS} dias, e os que vinham logo após este cursor já não existem. Recomece sem `after` e leia o que perdeu nas listas."),
            Self::RateLimited { retry_after_seconds } => {
                format!("Requisições demais: o limite do seu plano foi atingido. Tente de novo em {}.", format_seconds_pt(*retry_after_seconds))
            }
            Self::TooManyPageViews { retry_after_seconds } => {
                format!("Páginas demais deste endereço; sua cota da API está intacta. Tente de novo em {}.", format_seconds_pt(*retry_after_seconds))
            }
            Self::TooManyRegistrations { retry_after_seconds } => {
                format!("Chaves novas demais em um dia, deste endereço ou para este e-mail. Tente de novo em {}.", format_seconds_pt(*retry_after_seconds))
            }
            Self::TooManyKeyChanges { retry_after_seconds } => {
                format!("Mudanças demais desta chave em um dia. Tente de novo em {}.", format_seconds_pt(*retry_after_seconds))
            }
            Self::Internal => "Algo deu errado do nosso lado. Tente de novo e, se persistir, informe-nos o request_id.".into(),
            Self::DatasetNotLoaded { dataset } => format!("Os dados de `{dataset}` ainda não foram carregados, então não há nada verdadeiro a responder. Tente mais tarde."),
            Self::DependencyUnavailable => "Uma parte do serviço de que esta requisição precisa está fora no momento. Tente de novo em alguns segundos.".into(),
            Self::Overloaded => "Recebemos mais requisições do que conseguimos responder a tempo. Não há nada de errado com a sua: tente de novo em um segundo e, depois, cada vez mais espaçado.".into(),
        }
    }
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
