//! `fusion.v1.Ratios`.

use std::fmt::Write;
use std::sync::Arc;

use fusion_calibrations::estimate::StaleReason;
use fusion_calibrations::lookup::{Answer, Query};
use fusion_calibrations::record::Record;
use fusion_calibrations::rows::RowRule;
use fusion_calibrations::search::any_session;
use fusion_calibrations::search::points::{self, Point};
use fusion_calibrations::shape::Shape;
use fusion_proto::v1;
use fusion_proto::v1::ratios_server::Ratios;
use tonic::{Request, Response, Status};

use super::{Parts, engine, explain, shape};
use crate::planner::Known;
use crate::recalibration::Recalibration;
use crate::store::{CalibrationKey, Stored};
use crate::table::{self, Identity, Table};

const DEFAULT_PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

/// Answers from the table; measures nothing.
pub struct RatiosService(pub Arc<Parts>);

#[tonic::async_trait]
impl Ratios for RatiosService {
    async fn get_ratio(
        &self,
        request: Request<v1::GetRatioRequest>,
    ) -> Result<Response<v1::GetRatioReply>, Status> {
        let request = request.into_inner();
        let shape = shape(request.shape.as_ref())?;
        let question = self.question(shape, request.engine).await;
        Ok(Response::new(question.answer().0))
    }

    async fn list_ratios(
        &self,
        request: Request<v1::ListRatiosRequest>,
    ) -> Result<Response<v1::ListRatiosReply>, Status> {
        let request = request.into_inner();
        let size = match request.page_size {
            0 => DEFAULT_PAGE,
            size => size.min(LARGEST_PAGE),
        };
        let after = page_key(&request.page_token)?;
        let (records, next) = self.0.table.page(after.as_deref(), size as usize);
        let identity = self.0.jobs.identity().borrow().clone();
        Ok(Response::new(v1::ListRatiosReply {
            estimates: records.iter().map(|record| wire_estimate(record, identity.as_ref())).collect(),
            next_page_token: next.map(|key| hex(&key)).unwrap_or_default(),
            total: self.0.table.counts(identity.as_ref()).all,
        }))
    }

    async fn explain_ratio(
        &self,
        request: Request<v1::ExplainRatioRequest>,
    ) -> Result<Response<v1::ExplainRatioReply>, Status> {
        let request = request.into_inner();
        let shape = shape(request.shape.as_ref())?;
        Ok(Response::new(self.question(shape, request.engine).await.explain(&self.0.table)))
    }

    async fn list_history(
        &self,
        request: Request<v1::ListHistoryRequest>,
    ) -> Result<Response<v1::ListHistoryReply>, Status> {
        let request = request.into_inner();
        let shape = shape(request.shape.as_ref())?;
        let limit = match request.limit {
            0 => DEFAULT_PAGE,
            limit => limit.min(LARGEST_PAGE),
        };
        let Some(identity) = self.0.identity().await else {
            return Ok(Response::new(v1::ListHistoryReply::default()));
        };
        let mut past = self.history(&identity, shape).await?;
        past.sort_by_key(|stored| std::cmp::Reverse(stored.revision));
        let total = u32::try_from(past.len()).unwrap_or(u32::MAX);
        past.truncate(limit as usize);
        let estimates = past.iter().map(|stored| wire_estimate(&stored.record, Some(&identity))).collect();
        Ok(Response::new(v1::ListHistoryReply { estimates, total }))
    }
}

impl RatiosService {
    async fn question(&self, shape: Shape, wire_engine: Option<v1::Engine>) -> Question {
        let identity = self.0.identity().await;
        let records =
            identity.as_ref().map(|identity| self.0.table.served(&identity.chip)).unwrap_or_default();
        let rule =
            identity.as_ref().map(|identity| self.0.table.row_rule(&identity.chip)).unwrap_or_default();
        let conditions = self.0.sensors.recent().conditions();
        let recalibration = Arc::clone(&self.0.recalibration);
        let withheld = self.0.self_tests.withheld();
        Question { shape, identity, wire_engine, records, rule, conditions, recalibration, withheld }
    }
}

impl RatiosService {
    /// Every calibration of a shape on this chip that is still kept: by each engine, under all conditions.
    async fn history(&self, identity: &Identity, shape: Shape) -> Result<Vec<Stored>, Status> {
        let records = self.0.table.of_chip(&identity.chip);
        let mut past = Vec::new();
        for record in records.iter().filter(|record| record.estimate.shape == shape) {
            let of_key = self.0.store.history(CalibrationKey::of(record)).await;
            past.extend(of_key.map_err(|error| Status::internal(error.to_string()))?);
        }
        Ok(past)
    }
}

/// A question with everything that its answer may rest on.
struct Question {
    shape: Shape,
    identity: Option<Identity>,
    wire_engine: Option<v1::Engine>,
    records: Vec<Arc<Record>>,
    rule: RowRule,
    conditions: fusion_calibrations::conditions::Conditions,
    recalibration: Arc<Recalibration>,
    /// Why nothing measured here answers; empty if it may.
    withheld: String,
}

impl Question {
    /// The answer, and the record that it rests on.
    fn answer(&self) -> (v1::GetRatioReply, Option<&Arc<Record>>) {
        let Some(identity) = &self.identity else { return (self.unknown_machine(), None) };
        let answer = self.lookup(identity);
        let record = self.chosen(&answer);
        (self.reply(identity, &answer, record), record)
    }

    fn lookup(&self, identity: &Identity) -> Answer<'_> {
        let engine = engine(self.wire_engine.clone(), identity);
        let (shape, conditions) = (self.shape, self.conditions);
        let query = Query { shape, chip: &identity.chip, engine: &engine, conditions };
        table::answer(&self.records, &query, &self.rule)
    }

    fn chosen(&self, answer: &Answer<'_>) -> Option<&Arc<Record>> {
        let estimate = answer.estimate?;
        self.records.iter().find(|record| std::ptr::eq(&raw const record.estimate, estimate))
    }

    fn reply(
        &self,
        identity: &Identity,
        answer: &Answer<'_>,
        record: Option<&Arc<Record>>,
    ) -> v1::GetRatioReply {
        let stale = self.staleness(answer);
        v1::GetRatioReply {
            ratio: answer.ratio.get(),
            secondary_rows: answer.secondary_rows,
            lines: answer.lines.map(Into::into),
            source: v1::Source::from(answer.source).into(),
            estimate: record
                .map(|record| fusion_proto::estimate(&record.estimate, &record.chip, &record.engine, stale)),
            conditions: Some(self.conditions.into()),
            stale_reason: stale.map(|reason| reason.to_string()).unwrap_or_default(),
            chip: Some((&identity.chip).into()),
            withheld: self.withheld.clone(),
        }
    }

    /// Why what answers should be measured anew: by the lookup, or by what the planner knows of age and drift.
    fn staleness(&self, answer: &Answer<'_>) -> Option<StaleReason> {
        let by_planner = || self.recalibration.staleness(self.shape, &Known::of(answer))?.mark();
        answer.stale.or_else(by_planner)
    }

    fn unknown_machine(&self) -> v1::GetRatioReply {
        v1::GetRatioReply {
            source: v1::Source::None.into(),
            conditions: Some(self.conditions.into()),
            withheld: self.withheld.clone(),
            ..Default::default()
        }
    }

    fn explain(&self, table: &Table) -> v1::ExplainRatioReply {
        let Some(identity) = &self.identity else {
            return v1::ExplainRatioReply {
                answer: Some(self.unknown_machine()),
                summary: "No worker has run yet, so this machine is unknown: see 'fusionctl status' for why."
                    .to_owned(),
                ..Default::default()
            };
        };
        let answer = self.lookup(identity);
        let record = self.chosen(&answer);
        let samples = record.map(|record| record.samples.as_slice()).unwrap_or_default();
        let points: Vec<Point> =
            record.map(|record| points::points(&record.estimate, samples, &self.rule)).unwrap_or_default();
        v1::ExplainRatioReply {
            answer: Some(self.reply(identity, &answer, record)),
            summary: self.summary(&answer, identity),
            considered: self.considered(identity, &answer, record),
            samples: samples.iter().map(fusion_proto::sample).collect(),
            break_even_rows: answer.lines.and_then(|lines| lines.break_even_rows()),
            speed_up_any_session: record.map(|record| any_session(record.estimate.speed_up).into()),
            balanced_ratio: answer.lines.map(|lines| lines.balanced_ratio().get()),
            predicted: explain::predicted(self.shape, &answer, &points),
            points: points.iter().map(explain::point).collect(),
            not_counted: explain::not_counted(samples),
            cliffs: explain::cliffs(&identity.chip, self.shape, &table.learnt_cliffs(&identity.chip)),
        }
    }

    fn summary(&self, answer: &Answer<'_>, identity: &Identity) -> String {
        let summary = explain::summary(self.shape, answer, &identity.chip);
        if self.withheld.is_empty() {
            summary
        } else {
            format!("{summary} Nothing measured here is served: {}.", self.withheld)
        }
    }

    /// The chosen record first, then the others of the same layer; other layers are no news.
    fn considered(
        &self,
        identity: &Identity,
        answer: &Answer<'_>,
        record: Option<&Arc<Record>>,
    ) -> Vec<v1::Considered> {
        let chosen = record.map(|record| v1::Considered {
            estimate: Some(wire_estimate(record, Some(identity))),
            chosen: true,
            reason: answer.source.to_string(),
        });
        let others = answer.considered.iter().filter_map(|(index, why)| {
            let record = &self.records[*index];
            (record.estimate.shape.layer() == self.shape.layer()).then(|| v1::Considered {
                estimate: Some(wire_estimate(record, Some(identity))),
                chosen: false,
                reason: why.to_string(),
            })
        });
        chosen.into_iter().chain(others).collect()
    }
}

fn wire_estimate(record: &Record, identity: Option<&Identity>) -> v1::Estimate {
    let other_engine =
        identity.is_some_and(|identity| record.chip == identity.chip && record.engine != identity.engine);
    let stale = other_engine.then_some(StaleReason::EngineChanged);
    fusion_proto::estimate(&record.estimate, &record.chip, &record.engine, stale)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn page_key(token: &str) -> Result<Option<Vec<u8>>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let digits = token.as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    let key: Option<Vec<u8>> =
        pairs.iter().map(|pair| Some(digit(pair[0])? * 16 + digit(pair[1])?)).collect();
    match key {
        Some(key) if rest.is_empty() => Ok(Some(key)),
        _ => Err(Status::invalid_argument(
            "the page token is not one that this daemon gave: pass next_page_token of the page before",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_tokens_read_back_and_others_are_refused() {
        let key = vec![0, 1, 0xfe, 0xff];
        assert_eq!(page_key(&hex(&key)).unwrap(), Some(key));
        assert_eq!(page_key("").unwrap(), None);
        for token in ["a", "zz", "0g", "é1", "+1"] {
            assert_eq!(page_key(token).unwrap_err().code(), tonic::Code::InvalidArgument, "{token}");
        }
    }
}
