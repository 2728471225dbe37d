//! One place that looks at the sensors for everybody, and tells when the conditions change.
//!
//! Looks are caused, never scheduled, while nobody works: an event of the system, a job or a client that begins or ends, a question. What
//! has no event (memory pressure on macOS, heat on Linux) is therefore seen at the next of these. Only while a client is busy does a timer
//! look too: then the machine is awake anyway, and those values are the ones that change.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use fusion_calibrations::conditions::Conditions;
use tokio::sync::watch;

use super::{Events, ProcessorTime, Readings, Sensors};
use crate::clocks;
use crate::measure::unix_ms;
use crate::planner::canary::Pace;

/// Time between looks while a client is busy. Heat and memory pressure change over seconds to minutes.
const WHILE_BUSY: Duration = Duration::from_secs(5);

/// What the sensors said last.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What they said.
    pub readings: Readings,
    /// Since when the conditions are these, as far as anybody looked, in ms since 1970.
    pub since_unix_ms: u64,
    /// When a look found that the machine had slept since the one before, in ms since 1970; `None` if none has.
    pub woke_at_unix_ms: Option<u64>,
}

impl Observed {
    /// The first look.
    pub fn first(readings: Readings, now_unix_ms: u64) -> Self {
        Self { readings, since_unix_ms: now_unix_ms, woke_at_unix_ms: None }
    }

    /// The next look.
    pub fn next(&self, readings: Readings, now_unix_ms: u64) -> Self {
        let before = &self.readings;
        let same = before.conditions == readings.conditions;
        let slept = before
            .slept
            .zip(readings.slept)
            .is_some_and(|(then, now)| now.saturating_sub(then) > clocks::GAP);
        Self {
            since_unix_ms: if same { self.since_unix_ms } else { now_unix_ms },
            woke_at_unix_ms: if slept { Some(now_unix_ms) } else { self.woke_at_unix_ms },
            readings,
        }
    }

    /// The conditions.
    pub fn conditions(&self) -> Conditions {
        self.readings.conditions
    }
}

/// Looks at the sensors, and tells.
pub struct SensorWatch {
    sensors: Arc<dyn Sensors>,
    /// Receivers wake when the conditions change; the readings are replaced at each look.
    observed: watch::Sender<Observed>,
    looked: Mutex<Instant>,
    /// How fast the last canary found the machine, and when.
    pace: Mutex<Option<(Pace, Instant)>>,
}

impl SensorWatch {
    /// How long a look counts as recent.
    pub const RECENT: Duration = Duration::from_millis(500);

    /// Looks for the first time.
    pub fn new(sensors: Arc<dyn Sensors>) -> Self {
        let first = Observed::first(sensors.readings(), unix_ms(SystemTime::now()));
        tracing::info!(sensors = sensors.source(), conditions = %first.conditions(), "the sensors are read");
        Self {
            sensors,
            observed: watch::Sender::new(first),
            looked: Mutex::new(Instant::now()),
            pace: Mutex::default(),
        }
    }

    /// A canary found the machine so fast: conditions are at least as hot as that implies, for a while.
    pub fn correct(&self, pace: Pace) {
        *self.pace.lock().expect("no holder of this lock panics") = Some((pace, Instant::now()));
        self.refresh();
    }

    fn corrected(&self, claimed: Conditions) -> Conditions {
        match *self.pace.lock().expect("no holder of this lock panics") {
            Some((pace, at)) => pace.corrects_after(at.elapsed(), claimed),
            None => claimed,
        }
    }

    /// What was seen last. Receivers wake when the conditions change.
    pub fn subscribe(&self) -> watch::Receiver<Observed> {
        self.observed.subscribe()
    }

    /// What was seen last, without looking.
    pub fn last(&self) -> Observed {
        self.observed.borrow().clone()
    }

    /// Looks now.
    pub fn refresh(&self) -> Observed {
        let mut readings = self.sensors.readings();
        readings.conditions = self.corrected(readings.conditions);
        *self.looked.lock().expect("no holder of this lock panics") = Instant::now();
        self.note(|_| readings);
        self.last()
    }

    /// What was seen within [`Self::RECENT`], or looks now: answering a question must not cost a walk through the file system.
    pub fn recent(&self) -> Observed {
        let age = self.looked.lock().expect("no holder of this lock panics").elapsed();
        if age < Self::RECENT { self.last() } else { self.refresh() }
    }

    fn note(&self, readings: impl FnOnce(&Readings) -> Readings) {
        self.observed.send_if_modified(|observed| {
            let before = observed.conditions();
            *observed = observed.next(readings(&observed.readings), unix_ms(SystemTime::now()));
            let changed = observed.conditions() != before;
            if changed {
                tracing::info!(%before, now = %observed.conditions(), "the conditions changed");
            }
            changed
        });
    }

    /// Looks whenever something happens, and while clients are busy (`busy` counts them) every few seconds. For a task; ends with the
    /// clients.
    pub async fn run(&self, mut busy: watch::Receiver<usize>) {
        let mut events = self.sensors.events();
        loop {
            let working = *busy.borrow_and_update() > 0;
            tokio::select! {
                () = events.next() => { self.refresh(); }
                turned = busy.changed() => {
                    if turned.is_err() {
                        return;
                    }
                    self.recent();
                }
                () = tokio::time::sleep(WHILE_BUSY), if working => { self.recent(); }
            }
        }
    }
}

/// Whoever looks through the watch tells everybody: the conditions around each call of a job are seen by the clients too.
impl Sensors for SensorWatch {
    fn conditions(&self) -> Conditions {
        let conditions = self.corrected(self.sensors.conditions());
        if conditions != self.observed.borrow().conditions() {
            self.note(|before| Readings { conditions, ..before.clone() });
        }
        conditions
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        self.sensors.available_memory_bytes()
    }

    fn readings(&self) -> Readings {
        self.refresh().readings
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        self.sensors.processor_time()
    }

    fn events(&self) -> Box<dyn Events> {
        self.sensors.events()
    }

    fn source(&self) -> String {
        self.sensors.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;

    use fusion_calibrations::conditions::Thermal;
    use tokio::sync::Notify;

    #[derive(Default)]
    struct Told {
        readings: Mutex<Readings>,
        looks: Mutex<u32>,
        event: Arc<Notify>,
    }

    impl Told {
        fn set(&self, thermal: Thermal) {
            self.readings.lock().unwrap().conditions.thermal = thermal;
        }

        fn looks(&self) -> u32 {
            *self.looks.lock().unwrap()
        }
    }

    impl Sensors for Told {
        fn conditions(&self) -> Conditions {
            self.readings.lock().unwrap().conditions
        }

        fn available_memory_bytes(&self) -> Option<u64> {
            None
        }

        fn readings(&self) -> Readings {
            *self.looks.lock().unwrap() += 1;
            self.readings.lock().unwrap().clone()
        }

        fn events(&self) -> Box<dyn Events> {
            struct Notified(Arc<Notify>);
            impl Events for Notified {
                fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
                    Box::pin(self.0.notified())
                }
            }
            Box::new(Notified(Arc::clone(&self.event)))
        }

        fn source(&self) -> String {
            "a test".to_owned()
        }
    }

    fn watched() -> (Arc<Told>, Arc<SensorWatch>) {
        let told = Arc::new(Told::default());
        let watch = SensorWatch::new(Arc::clone(&told) as Arc<dyn Sensors>);
        (told, Arc::new(watch))
    }

    fn readings(thermal: Thermal, slept_seconds: u64) -> Readings {
        let conditions = Conditions { thermal, ..Conditions::default() };
        Readings { conditions, slept: Some(Duration::from_secs(slept_seconds)), ..Readings::default() }
    }

    #[test]
    fn a_slow_canary_makes_it_hotter_than_the_sensors_claim_and_never_cooler() {
        let (told, watch) = watched();
        told.set(Thermal::Nominal);
        watch.correct(Pace::VerySlow);
        assert_eq!(watch.conditions().thermal, Thermal::Heavy);
        assert_eq!(watch.last().conditions().thermal, Thermal::Heavy);
        told.set(Thermal::Trapping);
        assert_eq!(watch.conditions().thermal, Thermal::Trapping);
        watch.correct(Pace::Full);
        told.set(Thermal::Unknown);
        assert_eq!(watch.conditions().thermal, Thermal::Unknown);
    }

    #[test]
    fn conditions_hold_since_they_were_first_seen() {
        let first = Observed::first(readings(Thermal::Nominal, 0), 100);
        let second = first.next(readings(Thermal::Nominal, 0), 200);
        assert_eq!((second.since_unix_ms, second.woke_at_unix_ms), (100, None));
        let third = second.next(readings(Thermal::Heavy, 0), 300);
        assert_eq!((third.since_unix_ms, third.conditions().thermal), (300, Thermal::Heavy));
    }

    #[test]
    fn a_sleep_is_seen_at_the_next_look_and_remembered() {
        let first = Observed::first(readings(Thermal::Nominal, 60), 100);
        assert_eq!(first.woke_at_unix_ms, None);
        let woken = first.next(readings(Thermal::Nominal, 90), 200);
        assert_eq!((woken.since_unix_ms, woken.woke_at_unix_ms), (100, Some(200)));
        assert_eq!(woken.next(readings(Thermal::Nominal, 90), 300).woke_at_unix_ms, Some(200));
        // Clocks that are not read at once, and a sensor that went silent.
        let jitter = Readings { slept: Some(Duration::from_millis(60_010)), ..Readings::default() };
        assert_eq!(first.next(jitter, 200).woke_at_unix_ms, None);
        assert_eq!(first.next(Readings::default(), 200).woke_at_unix_ms, None);
    }

    #[test]
    fn questions_in_a_row_look_once_and_a_refresh_always() {
        let (told, watch) = watched();
        assert_eq!(told.looks(), 1);
        for _ in 0..100 {
            watch.recent();
        }
        assert!(told.looks() < 10);
        let before = told.looks();
        watch.refresh();
        watch.refresh();
        assert_eq!(told.looks(), before + 2);
    }

    #[test]
    fn whoever_waits_wakes_for_other_conditions_only() {
        let (told, watch) = watched();
        let mut receiver = watch.subscribe();
        told.readings.lock().unwrap().gpu_busy = Some(0.5);
        watch.refresh();
        assert!(!receiver.has_changed().unwrap());
        assert_eq!(receiver.borrow().readings.gpu_busy, Some(0.5));
        // A job looks before and after its calls.
        told.set(Thermal::Heavy);
        assert_eq!(Sensors::conditions(watch.as_ref()).thermal, Thermal::Heavy);
        assert!(receiver.has_changed().unwrap());
        let seen = receiver.borrow_and_update().clone();
        assert_eq!((seen.conditions().thermal, seen.readings.gpu_busy), (Thermal::Heavy, Some(0.5)));
    }

    #[tokio::test]
    async fn an_event_is_a_look() {
        let (told, watch) = watched();
        let (busy, receiver) = watch::channel(0);
        let mut observed = watch.subscribe();
        let task = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { watch.run(receiver).await }
        });
        told.set(Thermal::Moderate);
        told.event.notify_one();
        observed.changed().await.unwrap();
        assert_eq!(observed.borrow().conditions().thermal, Thermal::Moderate);
        drop(busy);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_looks_while_nobody_works() {
        let (told, watch) = watched();
        let (busy, receiver) = watch::channel(0);
        let task = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { watch.run(receiver).await }
        });
        tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
        assert_eq!(told.looks(), 1);
        // The age of a look is of the real clock.
        *watch.looked.lock().unwrap() -= 2 * SensorWatch::RECENT;
        busy.send_replace(1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(told.looks(), 2);
        *watch.looked.lock().unwrap() -= 2 * SensorWatch::RECENT;
        tokio::time::sleep(WHILE_BUSY).await;
        assert_eq!(told.looks(), 3);
        drop(busy);
        task.await.unwrap();
    }
}
