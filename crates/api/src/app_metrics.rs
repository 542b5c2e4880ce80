//! The state of a replica as metrics: what is in flight, how far it is behind, and what is wrong.

use vintem_domain::Dataset;
use vintem_meter::UsageSource;

use crate::app::App;
use crate::health::DegradedReason;
use crate::load::register_shed_counters;

impl App {
    /// Sets the gauges that describe this moment.
    pub fn record_gauges(&self) {
        register_shed_counters();
        metrics::gauge!("vintem_requests_in_flight").set(self.load.requests.in_flight() as f64);
        metrics::gauge!("vintem_requests_in_flight_limit").set(self.load.requests.current_limit() as f64);
        self.record_data_gauges();
        self.record_meter_gauges();

        if let Some(age) = self.keyring.current_at().age() {
            metrics::gauge!("vintem_keys_age_seconds").set(age.as_secs_f64());
        }
        let reasons = self.degraded_reasons();
        for reason in DegradedReason::ALL {
            metrics::gauge!("vintem_degraded", "reason" => reason.id()).set(as_gauge(reasons.contains(&reason)));
        }
    }

    fn record_data_gauges(&self) {
        if let Some(age) = self.live_snapshot.current_at().age() {
            metrics::gauge!("vintem_snapshot_check_age_seconds").set(age.as_secs_f64());
        }
        let Some(snapshot) = self.live_snapshot.get() else { return };
        let now = self.clock.now();
        for dataset in Dataset::all() {
            let Some(state) = snapshot.state(dataset) else { continue };
            let age = (now - state.loaded_at).as_seconds_f64();
            let freshness = self.live_snapshot.freshness(&snapshot, dataset, now);
            metrics::gauge!("vintem_snapshot_age_seconds", "dataset" => dataset.id()).set(age);
            metrics::gauge!("vintem_snapshot_generation", "dataset" => dataset.id()).set(state.generation as f64);
            metrics::gauge!("vintem_data_stale", "dataset" => dataset.id()).set(as_gauge(freshness.stale));
            metrics::gauge!("vintem_data_late", "dataset" => dataset.id()).set(as_gauge(freshness.late));
        }
    }

    fn record_meter_gauges(&self) {
        for (server, is_shared) in self.meter.redis_availability().enumerate() {
            metrics::gauge!("vintem_meter_shared", "server" => server.to_string()).set(as_gauge(is_shared));
        }
        for (source, backlog) in self.usage_backlogs() {
            if let UsageSource::RedisServer(server) = source {
                let server = server.to_string();
                metrics::gauge!("vintem_usage_waiting", "server" => server.clone()).set(backlog.fields as f64);
                metrics::gauge!("vintem_usage_waiting_seconds", "server" => server)
                    .set(backlog.oldest_age.as_secs_f64());
            }
        }
        metrics::gauge!("vintem_usage_kept").set(self.meter.local_usage_count() as f64);
    }
}

fn as_gauge(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}
