//! What is known of the daemon, and what happened so far.

use std::collections::VecDeque;
use std::time::Duration;

use fusion_client::{AttachedClient, v1};
use jiff::tz::TimeZone;

use super::changes;

/// Events that are kept: more than fit on any screen.
const MOST_EVENTS: usize = 200;

/// What one look at the daemon found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// The status.
    pub(crate) status: v1::GetStatusReply,
    /// Who is attached.
    pub(crate) clients: Vec<AttachedClient>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// When it was seen, in ms since 1970.
    pub(super) at_unix_ms: u64,
    /// What.
    pub(super) text: String,
}

/// A daemon that doesn't answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    /// Since when, in ms since 1970.
    pub(super) since_unix_ms: u64,
    /// Why, as it was said last.
    pub(super) why: String,
}

/// What is known of the daemon, and what happened so far.
#[derive(Debug)]
pub(crate) struct Screen {
    /// How often somebody looks.
    pub(super) interval: Duration,
    /// For the times of events.
    pub(super) zone: TimeZone,
    /// When somebody looked last, in ms since 1970.
    pub(super) now_unix_ms: u64,
    /// What was found when the daemon answered last.
    pub(super) last: Option<Seen>,
    /// Why it doesn't answer now.
    pub(super) gone: Option<Gone>,
    /// The oldest first.
    pub(super) events: VecDeque<Event>,
}

impl Screen {
    /// Nothing is known.
    pub(crate) fn new(interval: Duration, zone: TimeZone, now_unix_ms: u64) -> Self {
        Self { interval, zone, now_unix_ms, last: None, gone: None, events: VecDeque::new() }
    }

    /// Somebody looked at `now_unix_ms`: this was found, or this was wrong.
    pub(crate) fn looked(&mut self, now_unix_ms: u64, found: Result<Seen, String>) {
        self.now_unix_ms = now_unix_ms;
        match found {
            Ok(seen) => self.answered(seen),
            Err(why) => self.failed(why),
        }
    }

    /// Something else happened.
    pub(crate) fn note(&mut self, text: String) {
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event { at_unix_ms: self.now_unix_ms, text });
    }

    /// Whether a person paused measuring, as far as is known.
    pub(crate) fn paused(&self) -> bool {
        let planner = self.last.as_ref().and_then(|seen| seen.status.planner.as_ref());
        planner.is_some_and(|planner| planner.paused)
    }

    fn answered(&mut self, seen: Seen) {
        let was_gone = self.gone.take().is_some();
        let before = self.last.replace(seen);
        let Some(Seen { status: after, clients }) = &self.last else { return };
        let who = format!("fusiond {}, process {}", after.version, after.pid);
        let texts = match before {
            None => vec![format!("{who} answers")],
            // What another process did before it is not what happened meanwhile.
            Some(before) if changes::other_daemon(&before.status, after) => {
                vec![format!("another daemon: {who}")]
            }
            Some(before) => {
                let back = was_gone.then(|| format!("{who} answers again"));
                let changes = changes::between((&before.status, &before.clients), (after, clients));
                back.into_iter().chain(changes).collect()
            }
        };
        texts.into_iter().for_each(|text| self.note(text));
    }

    fn failed(&mut self, why: String) {
        match &mut self.gone {
            Some(gone) => gone.why = why,
            None => {
                self.note(format!("no answer: {why}"));
                self.gone = Some(Gone { since_unix_ms: self.now_unix_ms, why });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, paused: bool) -> Seen {
        let planner = v1::PlannerStatus { paused, ..Default::default() };
        let status = v1::GetStatusReply {
            version: "1.2.3".to_owned(),
            pid,
            started_at_unix_ms: u64::from(pid),
            planner: Some(planner),
            ..Default::default()
        };
        Seen { status, clients: Vec::new() }
    }

    fn screen() -> Screen {
        Screen::new(Duration::from_secs(1), TimeZone::UTC, 0)
    }

    fn texts(screen: &Screen) -> Vec<&str> {
        screen.events.iter().map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn a_daemon_that_goes_and_comes_back_is_told_once_each() {
        let mut screen = screen();
        screen.looked(1000, Ok(seen(7, false)));
        screen.looked(2000, Err("no socket".to_owned()));
        screen.looked(3000, Err("nobody listens".to_owned()));
        let gone = Gone { since_unix_ms: 2000, why: "nobody listens".to_owned() };
        assert_eq!(screen.gone, Some(gone));
        assert!(screen.last.is_some());
        screen.looked(4000, Ok(seen(7, false)));
        let expected = [
            "fusiond 1.2.3, process 7 answers",
            "no answer: no socket",
            "fusiond 1.2.3, process 7 answers again",
        ];
        assert_eq!((texts(&screen), screen.gone.as_ref()), (expected.to_vec(), None));
        assert_eq!(screen.events[1].at_unix_ms, 2000);
    }

    #[test]
    fn another_daemon_has_another_past() {
        let mut screen = screen();
        screen.looked(1000, Ok(seen(7, true)));
        assert!(screen.paused());
        screen.looked(2000, Ok(seen(8, false)));
        assert!(!screen.paused());
        let expected = ["fusiond 1.2.3, process 7 answers", "another daemon: fusiond 1.2.3, process 8"];
        assert_eq!(texts(&screen), expected);
    }

    #[test]
    fn events_are_forgotten_in_the_end() {
        let mut screen = screen();
        for number in 0..=MOST_EVENTS {
            screen.note(number.to_string());
        }
        assert_eq!((screen.events.len(), screen.events[0].text.as_str()), (MOST_EVENTS, "1"));
    }
}
