//! The shell between its commands: its session, its history, and the way from a line to a verb.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use corral_client::{Client, Connector, Event, EventType, KeeperState, Servers, Status, Watcher};

use crate::cli::client::Connection;
use crate::cli::shell::paths::usage;
use crate::cli::shell::screen::Screen;
use crate::cli::shell::verbs::{VERBS, Verb, similar, verb};
use crate::cli::shell::words::{Words, split};
use crate::cli::shell::znodes::Call;
use crate::cli::shell::{apply, compare, copy, edit, ensemble, follow, quota, search, znodes};
use crate::exit::{ExitCode, Fault};
use crate::version::VERSION;

/// Lines that `history` shows.
const SHOWN: usize = 11;
/// Lines that are kept.
const HISTORY_MAX: usize = 10_000;

/// How the shell connects, again and again.
pub(super) struct Link<'a> {
    pub(super) connection: &'a Connection,
    pub(super) read_only: bool,
    pub(super) waits: bool,
}

/// The last lines of a shell, with their numbers.
#[derive(Default)]
struct History {
    /// Lines that were dropped.
    dropped: usize,
    lines: VecDeque<String>,
}

impl History {
    fn push(&mut self, line: &str) {
        if self.lines.len() == HISTORY_MAX {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line.to_owned());
    }

    /// Lines so far.
    fn count(&self) -> usize {
        self.dropped + self.lines.len()
    }

    fn get(&self, number: usize) -> Option<&str> {
        self.lines.get(number.checked_sub(self.dropped)?).map(String::as_str)
    }
}

/// The shell.
pub(super) struct Shell<'a> {
    pub(super) screen: Screen,
    link: Link<'a>,
    watcher: Watcher,
    client: RefCell<Option<Client>>,
    host: RefCell<String>,
    history: RefCell<History>,
    shows_events: Cell<bool>,
    /// Whether the shell has not connected yet.
    is_new: Cell<bool>,
    quits: Cell<bool>,
}

impl<'a> Shell<'a> {
    pub(super) fn new(screen: Screen, link: Link<'a>, watcher: Watcher) -> Shell<'a> {
        let host = link.connection.server().to_owned();
        Shell {
            screen,
            link,
            watcher,
            client: RefCell::new(None),
            host: RefCell::new(host),
            history: RefCell::new(History::default()),
            shows_events: Cell::new(true),
            is_new: Cell::new(true),
            quits: Cell::new(false),
        }
    }

    /// Whether `quit` was given.
    pub(super) fn quits(&self) -> bool {
        self.quits.get()
    }

    /// The session, if there is one.
    pub(super) fn client(&self) -> Option<Client> {
        let client = self.client.borrow().clone()?;
        let is_over = matches!(&*client.status().borrow(), Status::Ended(_));
        (!is_over).then_some(client)
    }

    /// Connects to the servers, and waits for that if it was asked for.
    ///
    /// # Errors
    /// If the arguments cannot be used, or no server answers while the shell waits.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        self.close().await;
        let host = self.host.borrow().clone();
        let servers = Servers::parse(&host).map_err(|error| usage(&error.reason))?;
        let watcher = Some(self.watcher.clone());
        let connector = self.link.connection.connector(servers)?;
        let connector = Connector { watcher, read_only: self.link.read_only, ..connector };
        let timeout = connector.timeout;
        let client = Client::start(connector);
        self.client.replace(Some(client.clone()));
        if !self.link.waits {
            return Ok(());
        }
        let mut status = client.status();
        let decided = status.wait_for(|status| !matches!(status, Status::Disconnected { .. }));
        let decided = tokio::time::timeout(timeout, decided).await.map(|_| ());
        decided.map_err(|_| {
            Fault::new(ExitCode::SessionLost, format!("{host}: no connection within {} ms", timeout.as_millis()))
        })
    }

    /// Closes the session, if there is one.
    pub(super) async fn close(&self) {
        let client = self.client.take();
        if let Some(client) = client {
            client.close().await;
        }
    }

    /// As zkCli's prompt.
    pub(super) fn prompt(&self) -> String {
        let state = match self.client.borrow().as_ref().map(|client| client.status().borrow().clone()) {
            Some(Status::Connected { is_read_only: false }) => "CONNECTED",
            Some(Status::Connected { is_read_only: true }) => "CONNECTEDREADONLY",
            Some(Status::Disconnected { .. }) => "CONNECTING",
            Some(Status::Ended(_)) | None => "CLOSED",
        };
        format!("[zk: {}({state}) {}] ", self.host.borrow(), self.history.borrow().count())
    }

    /// Shows an event. The first connection is no news.
    pub(super) fn tell(&self, event: &Event) {
        let is_first = match event.state {
            _ if event.kind != EventType::None => false,
            KeeperState::SaslAuthenticated => self.is_new.replace(false),
            KeeperState::SyncConnected | KeeperState::ConnectedReadOnly => {
                let is_first = self.is_new.get();
                self.is_new.set(is_first && self.link.connection.has_sasl());
                is_first
            }
            _ => false,
        };
        if is_first {
            return;
        }
        if self.shows_events.get() {
            self.screen.event(event);
        }
    }

    /// Runs a line.
    ///
    /// # Errors
    /// Of the command.
    pub(super) async fn run_line(&self, line: &str) -> Result<(), Fault> {
        let words = split(line);
        if words.is_empty() {
            return Ok(());
        }
        self.history.borrow_mut().push(line);
        self.run(&words).await
    }

    /// Runs a command of at least one word.
    ///
    /// # Errors
    /// Of the command.
    pub(super) async fn run(&self, words: &[String]) -> Result<(), Fault> {
        let [name, arguments @ ..] = words else { return Ok(()) };
        let known = verb(name).ok_or_else(|| unknown(name))?;
        let asks = arguments.iter().any(|word| word == "-h" || word == "--help");
        if asks && Words::parse(known, arguments).is_err() {
            self.screen.put(&known.help());
            return Ok(());
        }
        let advised = |fault: Fault| match fault.code {
            ExitCode::Usage if !fault.sentence.is_empty() => {
                usage(&format!("{fault}\n`help {name}` shows its options and examples"))
            }
            _ => fault,
        };
        if name == "redo" && !arguments.is_empty() {
            let again = self.again(&arguments[0]).map_err(advised)?;
            return Box::pin(self.run(&again)).await;
        }
        self.run_known(known, arguments).await.map_err(advised)
    }

    async fn run_known(&self, known: &'static Verb, arguments: &[String]) -> Result<(), Fault> {
        if self.run_own(known, arguments).await? {
            return Ok(());
        }
        let Some(client) = self.client() else {
            self.screen.note("Not connected");
            return Err(Fault::new(ExitCode::SessionLost, ""));
        };
        let words = self.parse(known, arguments)?;
        let (screen, connection, watcher) = (&self.screen, self.link.connection, &self.watcher);
        let call = Call { screen, connection, client: &client, watcher, words: &words };
        dispatch(known.name, &call).await
    }

    /// The verbs of the shell itself. False for others.
    async fn run_own(&self, verb: &'static Verb, arguments: &[String]) -> Result<bool, Fault> {
        match verb.name {
            "quit" | "exit" => {
                self.close().await;
                self.quits.set(true);
            }
            "close" if self.client().is_some() => self.close().await,
            "connect" => {
                if let Some(host) = arguments.first() {
                    Servers::parse(host).map_err(|error| usage(&error.reason))?;
                    self.host.replace(host.clone());
                }
                self.connect().await?;
            }
            "history" => self.show_history(),
            "printwatches" => match arguments.first() {
                Some(word) => self.shows_events.set(word == "on"),
                None => {
                    self.screen.note(&format!("printwatches is {}", if self.shows_events.get() { "on" } else { "off" }))
                }
            },
            "help" => return self.help(arguments).map(|()| true),
            "version" => {
                self.parse(verb, arguments)?;
                self.screen.note(&format!("corral CLI version: {VERSION}"));
            }
            "redo" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn show_history(&self) {
        let history = self.history.borrow();
        for number in history.count().saturating_sub(SHOWN)..history.count() {
            self.screen.note(&format!("{number} - {}", history.get(number).unwrap_or_default()));
        }
    }

    fn help(&self, arguments: &[String]) -> Result<(), Fault> {
        let text = match arguments.first() {
            Some(name) => verb(name).ok_or_else(|| unknown(name))?.help(),
            None => {
                let width = VERBS.iter().map(|verb| verb.name.len()).max().unwrap_or_default();
                let lines = VERBS.iter().map(|verb| format!("{:width$}  {}\n", verb.name, verb.about));
                format!("{}\n`help VERB` shows its options and examples.\n", lines.collect::<String>())
            }
        };
        self.screen.put(&text);
        Ok(())
    }

    /// The words of a line of the history.
    fn again(&self, number: &str) -> Result<Vec<String>, Fault> {
        let mut history = self.history.borrow_mut();
        let earlier = history.count().saturating_sub(1);
        let index = decoded(number).filter(|index| *index < earlier);
        let line = index.and_then(|index| history.get(index)).map(str::to_owned);
        let line = line.ok_or_else(|| usage("Command index out of range"))?;
        let words = split(&line);
        if words.first().is_some_and(|word| word == "redo") {
            return Err(usage("No redoing redos"));
        }
        if let Some(last) = history.lines.back_mut() {
            *last = line;
        }
        Ok(words)
    }

    /// Takes the words behind a verb apart, also in the forms of ZooKeeper 3.4.
    fn parse(&self, verb: &'static Verb, arguments: &[String]) -> Result<Words, Fault> {
        let parse = |arguments: &[String]| Words::parse(verb, arguments).map_err(|sentence| usage(&sentence));
        // This one looks at no argument.
        let mut words = parse(if verb.name == "whoami" { &[] } else { arguments })?;
        if words.has("?") {
            self.screen.note("usage: ls [options] path\n -?   help\n -R   recurse\n -s   stat\n -w   watch");
        }
        let (least, most) = arity(verb.name);
        if words.len() < least || words.len() > most {
            return Err(usage(&verb.usage()));
        }
        let name = verb.name;
        if words.len() > 1 && matches!(name, "get" | "ls" | "stat") {
            let options = if name == "get" { "[-s] [-w]" } else { "[-w]" };
            self.screen.error(&format!(
                "'{name} path [watch]' has been deprecated. Please use '{name} {options} path' instead."
            ));
            let mut rewritten = arguments.to_vec();
            "-w".clone_into(&mut rewritten[1]);
            words = parse(&rewritten)?;
            if words.len() < least {
                return Err(usage(&verb.usage()));
            }
        }
        if words.len() > 1 && name == "delete" {
            self.screen
                .error("'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.");
        }
        let is_watch_mode = |mode: &str| ["PERSISTENT", "PERSISTENT_RECURSIVE"].contains(&mode.to_uppercase().as_str());
        if name == "addWatch" && !words.value("m").is_none_or(is_watch_mode) {
            return Err(usage(&verb.usage()));
        }
        let members = ["file", "members", "add", "remove"];
        if name == "reconfig" && !members.iter().any(|option| words.has(option)) {
            return Err(usage(&verb.usage()));
        }
        Ok(words)
    }
}

/// A number as Java's `Integer.decode` reads it: `12`, `0x1f`, `017`.
fn decoded(text: &str) -> Option<usize> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hexadecimal) => usize::from_str_radix(hexadecimal, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => usize::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

/// How many words beside the options a verb needs and takes.
fn arity(name: &str) -> (usize, usize) {
    match name {
        "addWatch" | "apply" | "du" | "edit" | "find" | "tree" | "watch" => (1, 1),
        "cp" | "diff" | "mv" => (2, 2),
        "version" => (0, 0),
        "set" | "setAcl" => (2, usize::MAX),
        "config" | "getEphemerals" | "reconfig" | "whoami" => (0, usize::MAX),
        _ => (1, usize::MAX),
    }
}

fn unknown(name: &str) -> Fault {
    let advice = similar(name).map_or_else(String::new, |verb| format!("\ndid you mean `{verb}`?"));
    Fault::new(ExitCode::UnknownVerb, format!("Command not found: Command not found {name}{advice}"))
}

async fn dispatch(name: &str, call: &Call<'_>) -> Result<(), Fault> {
    match name {
        "ls" => znodes::ls(call).await,
        "get" => znodes::get(call).await,
        "stat" => znodes::stat(call).await,
        "set" => znodes::set(call).await,
        "create" => znodes::create(call).await,
        "delete" => znodes::delete(call).await,
        "deleteall" => znodes::delete_all(call).await,
        "getAcl" => znodes::get_acl(call).await,
        "setAcl" => znodes::set_acl(call).await,
        "addWatch" => znodes::add_watch(call).await,
        "removewatches" => znodes::remove_watches(call).await,
        "sync" => znodes::sync(call).await,
        "getEphemerals" => znodes::get_ephemerals(call).await,
        "getAllChildrenNumber" => znodes::get_all_children_number(call).await,
        "setquota" => quota::set(call).await,
        "listquota" => quota::list(call).await,
        "delquota" => quota::delete(call).await,
        "addauth" => ensemble::add_auth(call).await,
        "whoami" => ensemble::who_am_i(call).await,
        "config" => ensemble::config(call).await,
        "reconfig" => ensemble::reconfig(call).await,
        "apply" => apply::apply(call).await,
        "cp" => copy::cp(call).await,
        "mv" => copy::mv(call).await,
        "diff" => compare::diff(call).await,
        "du" => search::du(call).await,
        "edit" => edit::edit(call).await,
        "find" => search::find(call).await,
        "tree" => search::tree(call).await,
        "watch" => follow::watch(call).await,
        other => Err(unknown(other)),
    }
}
