//! The live view: `screen` holds what is known, `changes` tells what happened between two looks, `draw` puts it on a terminal. None of them
//! knows where looks come from.

mod changes;
mod draw;
mod screen;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use self::draw::draw;
pub(crate) use self::screen::{Screen, Seen};
