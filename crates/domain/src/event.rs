//! The kinds of events in the feed and in webhooks, and the fields that they can be filtered by.

use chrono::{DateTime, Utc};

use crate::lang::LocalizedText;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    FilingPublished,
    CompanyUpdated,
    RatePublished,
    FxPublished,
    SeriesRevised,
    StatementPublished,
    StatementRestated,
}

/// The fields that events can be filtered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterField {
    Companies,
    Categories,
    Series,
    Pairs,
}

impl FilterField {
    pub const ALL: [Self; 4] = [Self::Companies, Self::Categories, Self::Series, Self::Pairs];

    /// The name of the filter in a webhook.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Companies => "companies",
            Self::Categories => "categories",
            Self::Series => "series",
            Self::Pairs => "pairs",
        }
    }
}

/// Events and their deliveries are deleted after this time. Older data emits no events.
pub const EVENT_RETENTION_DAYS: u32 = 30;

/// The last position in the feed that an event can get at this time. Positions count the milliseconds since 2020, with 12
/// further bits, so that a restored database does not issue one twice.
pub fn last_position_at(now: DateTime<Utc>) -> i64 {
    const MILLISECONDS_UNTIL_2020: i64 = 1_577_836_800_000;
    (now.timestamp_millis() - MILLISECONDS_UNTIL_2020) << 12 | 0xfff
}

/// The type of the event that a webhook gets when its owner tests it. Never published in the feed.
pub const WEBHOOK_TEST_EVENT: &str = "webhook.test";

impl EventKind {
    pub const ALL: [Self; 7] = [
        Self::FilingPublished,
        Self::CompanyUpdated,
        Self::RatePublished,
        Self::FxPublished,
        Self::SeriesRevised,
        Self::StatementPublished,
        Self::StatementRestated,
    ];

    /// The id as stored and shown.
    pub const fn id(self) -> &'static str {
        match self {
            Self::FilingPublished => "filing.published",
            Self::CompanyUpdated => "company.updated",
            Self::RatePublished => "rate.published",
            Self::FxPublished => "fx.published",
            Self::SeriesRevised => "series.revised",
            Self::StatementPublished => "statement.published",
            Self::StatementRestated => "statement.restated",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// All ids, separated by commas.
    pub fn id_list() -> String {
        Self::ALL.map(Self::id).join(", ")
    }

    /// When such an event is published.
    pub const fn description(self) -> LocalizedText {
        match self {
            Self::FilingPublished => LocalizedText::new("a new filing", "um novo documento"),
            Self::CompanyUpdated => LocalizedText::new("a new or changed company", "uma companhia nova ou alterada"),
            Self::RatePublished => LocalizedText::new("a new value of a series", "um novo valor de uma série"),
            Self::FxPublished => LocalizedText::new("a new exchange rate", "uma nova cotação de câmbio"),
            Self::SeriesRevised => LocalizedText::new("a revised value", "um valor revisado"),
            Self::StatementPublished => {
                LocalizedText::new("new financial statements", "novas demonstrações financeiras")
            }
            Self::StatementRestated => LocalizedText::new(
                "financial statements that change previously filed figures",
                "demonstrações financeiras que alteram valores já entregues",
            ),
        }
    }

    /// The content of the event's `data`.
    pub const fn data_description(self) -> LocalizedText {
        match self {
            Self::FilingPublished => LocalizedText::new("the filing", "o documento"),
            Self::CompanyUpdated => LocalizedText::new("the company", "a companhia"),
            Self::RatePublished => LocalizedText::new("the value for that date", "o valor daquela data"),
            Self::FxPublished => LocalizedText::new("the rate for that date", "a cotação daquela data"),
            Self::SeriesRevised => LocalizedText::new(
                "`series`, `date`, `old`, `new`, `known_at`",
                "`series`, `date`, `old`, `new`, `known_at`",
            ),
            Self::StatementPublished => LocalizedText::new(
                "the document, as in `/companies/{id}/statements/periods`, and `company_id`",
                "o documento, como em `/companies/{id}/statements/periods`, e `company_id`",
            ),
            Self::StatementRestated => LocalizedText::new(
                "`set`, `reference_date`, `version`, `filed_on`, `filing_id`, `company_id`, `previous_version`, `total_changes`, and `changes`, each with `statement`, `scope`, `account`, `name`, `period_end`, `old`, `new` and more",
                "`set`, `reference_date`, `version`, `filed_on`, `filing_id`, `company_id`, `previous_version`, `total_changes` e `changes`, cada uma com `statement`, `scope`, `account`, `name`, `period_end`, `old`, `new` e outros",
            ),
        }
    }

    /// The filters that events of this kind have a field for.
    pub const fn filters(self) -> &'static [FilterField] {
        match self {
            Self::FilingPublished => &[FilterField::Companies, FilterField::Categories],
            Self::CompanyUpdated | Self::StatementPublished | Self::StatementRestated => &[FilterField::Companies],
            Self::RatePublished => &[FilterField::Series],
            Self::FxPublished => &[FilterField::Pairs],
            Self::SeriesRevised => &[FilterField::Series, FilterField::Pairs],
        }
    }

    pub fn supports_filter(self, field: FilterField) -> bool {
        self.filters().contains(&field)
    }
}
