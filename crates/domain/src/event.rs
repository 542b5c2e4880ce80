//! What there is to tell of: the kinds of events.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    FilingPublished,
    CompanyUpdated,
    RatePublished,
    FxPublished,
    SeriesRevised,
}

impl EventKind {
    pub const ALL: [Self; 5] =
        [Self::FilingPublished, Self::CompanyUpdated, Self::RatePublished, Self::FxPublished, Self::SeriesRevised];

    /// As stored and shown.
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
}
