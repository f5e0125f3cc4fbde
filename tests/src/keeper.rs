//! The thread that starts the servers.
//!
//! A server gets a signal when its parent dies (`setpriv --pdeathsig`), so that a killed test
//! leaves no server behind. To Linux the parent is the *thread* that started it, and the test
//! runner gives every test a thread of its own: a cluster that outlives the test which started
//! it would lose its server. Hence one thread, as long-lived as the process, starts them all.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command` from the thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (orders, receiver) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in receiver {
                // The one who ordered may be gone; its server then goes with its parent.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = channel();
    keeper
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .send((command, answer))
        .map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}
