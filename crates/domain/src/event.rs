//! The kinds of events that the feed and webhooks carry, and the fields that they can be filtered by.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    FilingPublished,
    CompanyUpdated,
    RatePublished,
    FxPublished,
    SeriesRevised,
}

/// The fields that events can be filtered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterField {
    Companies,
    Categories,
    Series,
    Pairs,
}

/// The type of the event that a webhook gets when its owner tests it. Never published in the feed.
pub const WEBHOOK_TEST_EVENT: &str = "webhook.test";

impl EventKind {
    pub const ALL: [Self; 5] =
        [Self::FilingPublished, Self::CompanyUpdated, Self::RatePublished, Self::FxPublished, Self::SeriesRevised];

    /// The id as stored and shown.
    pub const fn id(self) -> &'static str {
        match self {
            Self::FilingPublished => "filing.published",
            Self::CompanyUpdated => "company.updated",
            Self::RatePublished => "rate.published",
            Self::FxPublished => "fx.published",
            Self::SeriesRevised => "series.revised",
        }
    }

    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// Whether events of this kind have the field that this filter matches.
    pub const fn supports_filter(self, field: FilterField) -> bool {
        match self {
            Self::FilingPublished => matches!(field, FilterField::Companies | FilterField::Categories),
            Self::CompanyUpdated => matches!(field, FilterField::Companies),
            Self::RatePublished => matches!(field, FilterField::Series),
            Self::FxPublished => matches!(field, FilterField::Pairs),
            Self::SeriesRevised => matches!(field, FilterField::Series | FilterField::Pairs),
        }
    }
}
