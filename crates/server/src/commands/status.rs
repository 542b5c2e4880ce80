//! `vintem status`: how fresh the data is, what fails, and when it is tried again.

use chrono::{DateTime, NaiveDate, Utc};
use clap::Args;
use vintem_domain::dates::sao_paulo_date;
use vintem_ingest::source::DataSource;
use vintem_store::sources::{SourceAlert, SourceState};

use crate::settings::DatabaseSettings;

#[derive(Debug, Args)]
pub struct StatusCommand {
    #[command(flatten)]
    database: DatabaseSettings,
}

impl StatusCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let store = self.database.open_migrated_store().await?;
        let now = Utc::now();
        let today = sao_paulo_date(now);
        let newest_dates = store.newest_dates(today).await?;
        let states = store.source_states().await?;
        if store.has_synthetic_data().await? {
            println!("The database contains demo data, which is not fetched.");
            return Ok(());
        }

        println!(
            "{:22} {:11} {:11} {:12} {:>11}  state",
            "source", "data up to", "expected", "last success", "quarantined"
        );
        for source in DataSource::all() {
            let state = states.iter().find(|state| state.source == source.id());
            let newest = newest_dates.get(&source.dataset()).copied();
            println!("{}", describe_source(source, state, newest, now));
        }
        // Series that were switched off are not fetched any more.
        let fetched = states.iter().filter(|state| DataSource::from_id(&state.source).is_some());
        for part in fetched.clone().flat_map(|state| &state.failing_parts) {
            let failure = &part.failure;
            println!(
                "{} {} fails since {}: {}. Next attempt: {}",
                part.source,
                part.part,
                format_time(failure.since),
                failure.problem,
                format_time(failure.next_attempt_at)
            );
        }
        for SourceAlert { source, part, alert } in fetched.flat_map(|state| &state.alerts) {
            println!("{source} {part} was loaded, but {alert}");
        }
        Ok(())
    }
}

fn describe_source(
    source: DataSource,
    state: Option<&SourceState>,
    newest: Option<NaiveDate>,
    now: DateTime<Utc>,
) -> String {
    let dataset = source.dataset();
    let expected = newest.map(|newest| dataset.next_expected_on(newest));
    let checked_at = state.and_then(|state| state.checked_at);
    let judgment = match state {
        None => "never fetched",
        Some(state) if newest.is_some_and(|newest| dataset.is_stale(newest, sao_paulo_date(now))) => {
            if state.failing_parts.is_empty() { "stale" } else { "stale, failing" }
        }
        Some(state) if !state.failing_parts.is_empty() => "failing in part",
        Some(_) if newest.and_then(|newest| dataset.next_expected_at(newest)).is_some_and(|at| now >= at) => "late",
        Some(_) if checked_at.is_none() => "first fetch unfinished",
        Some(_) => "ok",
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{:22} {:11} {:11} {:12} {:>11}  {judgment}",
        source.id(),
        or_dash(newest.map(|date| date.to_string())),
        or_dash(expected.map(|date| date.to_string())),
        or_dash(checked_at.map(|at| format_age(now - at))),
        state.map_or(0, |state| state.quarantined_rows),
    )
}

/// `3 min ago`
fn format_age(age: chrono::TimeDelta) -> String {
    match age.num_minutes() {
        ..1 => "now".to_owned(),
        minutes @ 1..120 => format!("{minutes} min ago"),
        minutes @ 120..2880 => format!("{} h ago", minutes / 60),
        minutes => format!("{} days ago", minutes / 1440),
    }
}

fn format_time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn ages_are_short() {
        let ages = [0, 1, 119, 120, 2879, 2880].map(|minutes| format_age(TimeDelta::minutes(minutes)));
        assert_eq!(ages, ["now", "1 min ago", "119 min ago", "2 h ago", "47 h ago", "2 days ago"]);
    }

    #[test]
    fn a_source_that_was_never_fetched_says_so() {
        let now = "2026-11-13T15:00:00Z".parse().unwrap();
        let cdi = DataSource::from_id("cdi").unwrap();
        assert!(describe_source(cdi, None, None, now).ends_with("never fetched"));
        let state = SourceState { checked_at: Some(now), ..SourceState::default() };
        let text = describe_source(cdi, Some(&state), "2026-11-12".parse().ok(), now);
        assert_eq!(text, "cdi                    2026-11-12  2026-11-13  now                    0  ok");
    }
}
