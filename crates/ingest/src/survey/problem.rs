//! What a survey may find, each with a name and what to do about it.

use std::fmt;

use chrono::NaiveTime;

use crate::fetch::{CERTIFICATE_PROBLEM, FetchError};
use crate::parsers::{FormatAlert, FormatError};
use crate::upstreams::RejectionError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurveyProblem {
    Certificate(String),
    Unreachable(String),
    /// The host answers, but refuses this client.
    Blocked(String),
    UnexpectedStatus(String),
    EmptyWindow,
    MissingColumn(String),
    Unreadable(String),
    TooManyBadRows(String),
    ImplausibleValue(String),
    UnknownLabel(String),
    ChangedFormat(String),
    ShiftedHour(NaiveTime),
    NotRecorded(String),
}

impl SurveyProblem {
    pub(super) fn of_fetch(error: &FetchError) -> Self {
        let text = error.to_string();
        match error {
            FetchError::Failed { problem, .. } if problem.starts_with(CERTIFICATE_PROBLEM) => Self::Certificate(text),
            FetchError::Failed { last_response: Some(response), .. } => match response.status {
                401 | 403 | 429 | 451 => Self::Blocked(text),
                _ => Self::UnexpectedStatus(text),
            },
            FetchError::RetryLater { .. } => Self::Blocked(text),
            FetchError::Failed { .. } | FetchError::Unusable { .. } => Self::Unreachable(text),
        }
    }

    pub(super) fn of_format(error: &FormatError) -> Self {
        match error {
            FormatError::MissingColumns(_) => Self::MissingColumn(error.to_string()),
            FormatError::TooManyBadRows { .. } => Self::TooManyBadRows(error.to_string()),
            FormatError::InMember { error: inner, .. } if matches!(**inner, FormatError::MissingColumns(_)) => {
                Self::MissingColumn(error.to_string())
            }
            _ => Self::Unreadable(error.to_string()),
        }
    }

    pub(super) fn of_rejection(error: RejectionError) -> Self {
        match error {
            RejectionError::Format(error) => Self::of_format(&error),
            RejectionError::Content(error) => Self::TooManyBadRows(error.to_string()),
        }
    }

    pub(super) fn of_alert(alert: &FormatAlert) -> Self {
        match alert {
            FormatAlert::UnknownLabel(_) => Self::UnknownLabel(alert.to_string()),
            _ => Self::ChangedFormat(alert.to_string()),
        }
    }

    pub const fn id(&self) -> &'static str {
        match self {
            Self::Certificate(_) => "certificate",
            Self::Unreachable(_) => "unreachable",
            Self::Blocked(_) => "blocked",
            Self::UnexpectedStatus(_) => "unexpected_status",
            Self::EmptyWindow => "empty_window",
            Self::MissingColumn(_) => "missing_column",
            Self::Unreadable(_) => "unreadable",
            Self::TooManyBadRows(_) => "too_many_bad_rows",
            Self::ImplausibleValue(_) => "implausible_value",
            Self::UnknownLabel(_) => "unknown_label",
            Self::ChangedFormat(_) => "changed_format",
            Self::ShiftedHour(_) => "shifted_hour",
            Self::NotRecorded(_) => "not_recorded",
        }
    }

    /// Whether a fill would not load this. The others are loaded, and noted as unusual.
    pub const fn prevents_loading(&self) -> bool {
        !matches!(self, Self::EmptyWindow | Self::UnknownLabel(_) | Self::ChangedFormat(_) | Self::ShiftedHour(_))
    }

    /// What the operator can do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Certificate(_) => {
                "Check the clock and the CA certificates of this machine, and whether a proxy intercepts TLS."
            }
            Self::Unreachable(_) => {
                "Check the network, the proxy and the firewall of this machine, then try again later."
            }
            Self::Blocked(_) => {
                "Set VINTEM_CONTACT, so that the publisher can see who asks. If it refuses still, write to the publisher."
            }
            Self::UnexpectedStatus(_) => "Open the address in a browser. If it moved, set the address of the host.",
            Self::EmptyWindow => {
                "Check on the publisher's site whether there are values. If so, the code or the start changed."
            }
            Self::MissingColumn(_) | Self::Unreadable(_) | Self::TooManyBadRows(_) => {
                "The format differs from what this version reads. Record a kit with --record and report it."
            }
            Self::ImplausibleValue(_) => {
                "Compare the value with the publisher's site. If it is right, the bounds are wrong."
            }
            Self::UnknownLabel(_) | Self::ChangedFormat(_) => "It is loaded as far as it is known. Report the change.",
            Self::ShiftedHour(_) => {
                "Times may be in another zone. Don't trust the times of bulletins until this is clear."
            }
            Self::NotRecorded(_) => "Check the directory of the recording and the space that is left.",
        }
    }
}

impl fmt::Display for SurveyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyWindow => f.write_str("there are no values"),
            Self::ShiftedHour(usual) => {
                write!(f, "closing bulletins are stamped about {}, usually about 13:05", usual.format("%H:%M"))
            }
            Self::Certificate(text)
            | Self::Unreachable(text)
            | Self::Blocked(text)
            | Self::UnexpectedStatus(text)
            | Self::MissingColumn(text)
            | Self::Unreadable(text)
            | Self::TooManyBadRows(text)
            | Self::ImplausibleValue(text)
            | Self::UnknownLabel(text)
            | Self::ChangedFormat(text)
            | Self::NotRecorded(text) => f.write_str(text),
        }
    }
}
