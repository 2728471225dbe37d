//! Care for the store.

use fusion_client::v1;

use super::table::fields;
use super::words;
use crate::output::Output;

/// What a look over the store found.
pub(crate) fn verified(reply: &v1::VerifyStoreReply, output: Output) -> String {
    let verdict = match reply.problems.len() {
        0 => "all is well".to_owned(),
        count => output.yellow(&words::count(count, "problem")),
    };
    fields(
        &[
            ("store", Some(verdict)),
            (
                "holds",
                Some(format!(
                    "{}, {} earlier, {}",
                    words::count(reply.estimates as usize, "estimate"),
                    reply.history,
                    words::count(reply.record_files as usize, "record file")
                )),
            ),
            ("on disk", Some(format!("{} bytes", reply.bytes))),
            ("problems", lines(&reply.problems)),
            ("set aside", lines(&reply.set_aside)),
        ],
        output,
    )
}

/// What a rebuilt store holds.
pub(crate) fn rebuilt(reply: &v1::RebuildStoreReply) -> String {
    let mut text =
        format!("{} taken over from their files\n", words::count(reply.records as usize, "record"));
    for file in &reply.unreadable {
        text += &format!("unreadable, left where it is: {file}\n");
    }
    if !reply.set_aside.is_empty() {
        text += &format!("the old index lies in {}; remove it when nothing is missed\n", reply.set_aside);
    }
    text
}

/// What was written.
pub(crate) fn exported(reply: &v1::ExportStoreReply) -> String {
    format!("{} written to {}\n", words::count(reply.records as usize, "record"), reply.path)
}

fn lines(lines: &[String]) -> Option<String> {
    (!lines.is_empty()).then(|| lines.join("\n"))
}
