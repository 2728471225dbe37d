//! Whose worker measures for whom: the daemon's own for its engine, and a client's for another one.

use std::collections::BTreeMap;

use fusion_calibrations::engine::Engine;

use crate::clients::Introduction;
use crate::configuration::ClientWorkers;
use crate::jobs::Measurer;
use crate::machine::is_stand_in;
use crate::planner::{Moment, Planner, Subject};
use crate::table::Identity;

/// The planner of the own worker's engine, and one for each engine that a client's worker measures.
#[derive(Debug)]
pub(super) struct Planners {
    own: Planner,
    others: BTreeMap<Engine, Planner>,
}

impl Planners {
    pub(super) fn new(own: Planner) -> Self {
        Self { own, others: BTreeMap::new() }
    }

    /// The own worker's; it keeps the budget of all.
    pub(super) fn own(&mut self) -> &mut Planner {
        &mut self.own
    }

    /// That of a measurer, in step with the own one.
    pub(super) fn of(&mut self, by: &Measurer) -> &mut Planner {
        let Self { own, others } = self;
        match by {
            Measurer::Own => own,
            Measurer::Client { engine, .. } => {
                let planner = others.entry(engine.clone()).or_insert_with(|| own.beside());
                planner.follow(own);
                planner
            }
        }
    }

    /// That of an engine that was measured, if there is one.
    pub(super) fn of_engine(&mut self, engine: &Engine) -> Option<&mut Planner> {
        self.others.get_mut(engine)
    }

    /// Forgets all engines but these: a client that comes back is tried anew.
    pub(super) fn keep(&mut self, engines: &[&Engine]) {
        self.others.retain(|engine, _| engines.contains(&engine));
    }

    /// What is wrong with the worker for an engine, until it is tried again.
    pub(super) fn worker_trouble(&self, engine: &Engine, now: Moment) -> Option<String> {
        let mut troubles = self.others.get(engine)?.troubles();
        let (_, trouble) = troubles.find(|(subject, _)| *subject == Subject::Worker)?;
        (trouble.retry(now) > now).then(|| trouble.cause.to_string())
    }
}

/// Who measures for a client; and why it isn't its own worker, if it named one.
pub(super) fn choose(
    client: &Introduction,
    own: Option<&Identity>,
    workers: ClientWorkers,
    trouble: impl FnOnce(&Engine) -> Option<String>,
) -> (Measurer, Option<String>) {
    let (Some(engine), Some(worker)) = (&client.engine, &client.worker) else { return (Measurer::Own, None) };
    let why_not = match (own, workers) {
        (_, ClientWorkers::Ignored) => {
            Some("turned off: measure.client_workers is false in config.toml".to_owned())
        }
        (None, _) => Some("the daemon's own worker has not said yet what this machine is".to_owned()),
        (Some(own), _) if is_stand_in(&own.chip) => {
            Some("the daemon serves another machine's numbers".to_owned())
        }
        (Some(own), _) if own.engine == *engine => {
            Some("not needed: the daemon's own worker has the same engine".to_owned())
        }
        (Some(_), ClientWorkers::Used) => trouble(engine),
    };
    match why_not {
        None => (Measurer::Client { engine: engine.clone(), worker: worker.clone() }, None),
        why_not => (Measurer::Own, why_not),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_worker::ClientWorker;
    use crate::machine::MachineChoice;
    use fusion_calibrations::chip::Pair;
    use fusion_proto::v1;

    fn engine(hash: &str) -> Engine {
        Engine { os_build: "1".to_owned(), mlx_version: "2".to_owned(), library_hash: hash.to_owned() }
    }

    fn client(hash: &str, interpreter: Option<&str>) -> Introduction {
        let wire = |interpreter: &str| v1::ClientWorker {
            interpreter: interpreter.to_owned(),
            ..Default::default()
        };
        Introduction {
            pid: 1,
            name: "test".to_owned(),
            version: "0".to_owned(),
            engine: Some(engine(hash)),
            worker: interpreter.map(|path| ClientWorker::try_from(wire(path)).unwrap()),
            layers: Vec::new(),
            typical_rows: 0,
        }
    }

    #[test]
    fn another_engine_is_measured_by_its_clients_worker_unless_something_speaks_against_it() {
        let stand_in = "model:m4".parse::<MachineChoice>().unwrap().stand_in().unwrap();
        let mut own = stand_in.clone();
        own.chip.pair = Pair::Development;
        own.engine = engine("own");
        let ask = |client: &Introduction, own: Option<&Identity>, workers, trouble: Option<&str>| {
            choose(client, own, workers, |_| trouble.map(ToOwned::to_owned))
        };
        let (used, other) = (ClientWorkers::Used, client("other", Some("/usr/bin/python3")));
        let (by, why_not) = ask(&other, Some(&own), used, None);
        assert!(matches!(&by, Measurer::Client { engine, .. } if engine.library_hash == "other"));
        assert_eq!((by.engine(&own.engine), why_not), (&engine("other"), None));
        assert_eq!(ask(&client("other", None), Some(&own), used, None), (Measurer::Own, None));
        for (client, identity, workers, trouble, word) in [
            (&other, Some(&own), ClientWorkers::Ignored, None, "turned off"),
            (&other, None, used, None, "not said yet"),
            (&other, Some(&stand_in), used, None, "another machine's"),
            (&client("own", Some("/usr/bin/python3")), Some(&own), used, None, "same engine"),
            (&other, Some(&own), used, Some("it died"), "it died"),
        ] {
            let (by, why_not) = ask(client, identity, workers, trouble);
            assert_eq!(by, Measurer::Own);
            assert!(why_not.unwrap().contains(word), "{word}");
        }
    }
}
