//! `fusionctl watch`: a thin loop around [`crate::watch`] that owns the terminal.

mod poller;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use fusion_client::SocketPath;
use jiff::tz::TimeZone;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver, Sender};

use self::poller::{News, Order};
use super::now_unix_ms;
use crate::arguments::Watch;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::watch::{Screen, draw};

/// Keys and news that wait: a person types no faster than a screen is drawn.
const BACKLOG: usize = 16;

pub(super) async fn run(command: &Watch, socket: &SocketPath, output: Output) -> Result<(), Failure> {
    if output.json {
        let message = "watch draws on a terminal: 'fusionctl status --json' has the same once";
        return Err(Failure::Usage(message.to_owned()));
    }
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        let message = "there is no terminal to watch on: 'fusionctl status' tells the same once";
        return Err(Failure::Usage(message.to_owned()));
    }
    // Before the terminal is changed: from here on nothing ends us without changing it back.
    let signals = Signals::new()?;
    // From here on a panic changes it back, too, before it is told.
    let terminal = ratatui::try_init();
    let ending = match terminal {
        Ok(terminal) => watch(terminal, command.interval, socket, output, signals).await,
        Err(error) => Err(error.into()),
    };
    let restored = ratatui::try_restore().map_err(Failure::from);
    ending.and(restored)
}

/// What ends us from outside. SIGHUP isn't among them: with it the terminal is gone.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()];
        Ok(Self { interrupt: signal(interrupt)?, terminate: signal(terminate)? })
    }

    async fn next(&mut self) -> Failure {
        tokio::select! {
            _ = self.interrupt.recv() => Failure::ended(Exit::Interrupted, "interrupted"),
            _ = self.terminate.recv() => Failure::ended(Exit::Terminated, "ended by SIGTERM"),
        }
    }
}

/// Shows what is known until somebody has seen enough.
async fn watch(
    mut terminal: DefaultTerminal,
    interval: Duration,
    socket: &SocketPath,
    output: Output,
    mut signals: Signals,
) -> Result<(), Failure> {
    let mut screen = Screen::new(interval, TimeZone::system(), now_unix_ms());
    let (order, orders) = mpsc::channel(BACKLOG);
    let (send_news, mut news) = mpsc::channel(BACKLOG);
    tokio::spawn(poller::poll(socket.clone(), interval, orders, send_news));
    let mut keys = keys();
    loop {
        terminal.draw(|frame| draw(frame, &screen, output.color))?;
        tokio::select! {
            failure = signals.next() => return Err(failure),
            news = news.recv() => match news {
                Some(News::Look(look)) => screen.looked(now_unix_ms(), look.map(|seen| *seen)),
                Some(News::Failed(why)) => screen.note(why),
                None => return Err(Failure::ended(Exit::Internal, "nobody looks at the daemon any more; please report this")),
            },
            event = keys.recv() => match event {
                // Nobody types any more: the terminal is gone.
                None => return Ok(()),
                Some(event) => {
                    if let Wish::Leave = obey(&event?, &screen, &order) {
                        return Ok(());
                    }
                }
            },
        }
    }
}

/// Whether to go on.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Stay,
    Leave,
}

fn obey(event: &Event, screen: &Screen, order: &Sender<Order>) -> Wish {
    let Event::Key(key) = event else { return Wish::Stay };
    match meaning(key, screen.paused()) {
        Key::Leave => return Wish::Leave,
        // While so many wait, one more changes nothing.
        Key::Order(what) => drop(order.try_send(what)),
        Key::Nothing => {}
    }
    Wish::Stay
}

/// What a key means.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Leave,
    Order(Order),
    Nothing,
}

fn meaning(key: &KeyEvent, paused: bool) -> Key {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind != KeyEventKind::Press => Key::Nothing,
        // The terminal makes no signal of it while we draw.
        KeyCode::Char('c') if control => Key::Leave,
        _ if control => Key::Nothing,
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Key::Leave,
        KeyCode::Char('p' | 'P') => Key::Order(if paused { Order::Resume } else { Order::Pause }),
        KeyCode::Char('r' | 'R') => Key::Order(Order::Reload),
        _ => Key::Nothing,
    }
}

/// What happens at the terminal, read by a thread of its own, which ends with the process.
fn keys() -> Receiver<io::Result<Event>> {
    let (send, receive) = mpsc::channel(BACKLOG);
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if send.blocking_send(event).is_err() || failed {
                return;
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers, paused: bool) -> Key {
        meaning(&KeyEvent::new(code, modifiers), paused)
    }

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let plain = |character, paused| key(KeyCode::Char(character), KeyModifiers::NONE, paused);
        assert_eq!(plain('q', false), Key::Leave);
        assert_eq!(plain('p', false), Key::Order(Order::Pause));
        assert_eq!(plain('p', true), Key::Order(Order::Resume));
        assert_eq!(plain('r', true), Key::Order(Order::Reload));
        assert_eq!(plain('x', false), Key::Nothing);
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE, false), Key::Leave);
    }

    #[test]
    fn control_c_leaves_and_other_control_keys_do_nothing() {
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL, false), Key::Leave);
        assert_eq!(key(KeyCode::Char('p'), KeyModifiers::CONTROL, false), Key::Nothing);
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(meaning(&release, false), Key::Nothing);
    }
}
