//! The shell on a terminal: a thread edits lines, completes verbs, options and paths, and keeps the history.

use std::borrow::Cow;
use std::env;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use corral_client::Client;
use corral_core::path;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, Emacs, ExternalPrinter, FileBackedHistory, Hinter, History, KeyCode,
    KeyModifiers, MenuBuilder as _, Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu,
    Signal, Span, Suggestion, default_emacs_keybindings,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::cli::shell::driver::Driver;
use crate::cli::shell::verbs::{VERBS, verb};
use crate::exit::{ExitCode, Fault};

/// Lines of the history file.
const HISTORY_LINES: usize = 1000;
/// The first prompt does not wait longer.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);
/// A completion that waits longer finds nothing.
const COMPLETED_WITHIN: Duration = Duration::from_secs(2);
/// Events that wait to be shown while a line is edited.
const EVENTS_MAX: usize = 4096;
/// How often the terminal is looked after.
const LOOKED_AFTER: Duration = Duration::from_secs(1);
const MENU: &str = "completions";
const WELCOME: &str = "corral shell. Tab completes, `help` lists the verbs, Ctrl-D leaves.";
/// Lines that begin with it may hold a password.
const SECRET: &str = "addauth";
const GRAY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

/// Reads and runs lines until Ctrl-D or `quit`.
///
/// # Errors
/// If the terminal cannot be used.
pub(super) async fn run(driver: &mut Driver<'_>) -> Result<(), Fault> {
    let shell = driver.shell();
    let session = Arc::new(Mutex::new(None));
    let printer = ExternalPrinter::new(EVENTS_MAX);
    let events = printer.sender();
    let editor = editor(printer, Completions { session: Arc::clone(&session), runtime: Handle::current() });
    let (prompts, asked) = mpsc::channel(1);
    let (sender, mut lines) = mpsc::channel(1);
    thread::spawn(move || edit(editor, asked, &sender));
    shell.screen.note(WELCOME);
    if let Some(client) = shell.client() {
        // The first prompt says how it went, unless that takes long.
        let _ = timeout(CONNECTED_WITHIN, client.connected()).await;
    }
    while !shell.quits() {
        shell.screen.flush();
        *session.lock().unwrap_or_else(PoisonError::into_inner) = shell.client();
        if prompts.send(shell.prompt()).await.is_err() {
            break;
        }
        let events = events.clone();
        shell.screen.set_events(Some(Box::new(move |text| match events.try_send(text) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(text) | TrySendError::Disconnected(text)) => Err(text),
        })));
        let line = driver
            .wait(async {
                tokio::select! { line = lines.recv() => line, () = hung_up() => None }
            })
            .await;
        shell.screen.set_events(None);
        match line {
            Some(Ok(line)) if line.trim().is_empty() => {}
            Some(Ok(line)) => driver.take(shell.run_line(&line)).await,
            Some(Err(error)) => {
                let reason = format!("the terminal cannot be used: {error}; give commands by a pipe");
                return Err(Fault::new(ExitCode::Internal, reason));
            }
            None => break,
        }
    }
    Ok(())
}

/// Waits until the terminal has gone. The editor would read its end for ever.
async fn hung_up() {
    let input = io::stdin();
    loop {
        let mut terminal = [PollFd::new(&input, PollFlags::IN)];
        let polled = poll(&mut terminal, Some(&Timespec::default()));
        if polled.is_ok() && terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        sleep(LOOKED_AFTER).await;
    }
}

fn editor(printer: ExternalPrinter<String>, completions: Completions) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let next = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(next));
    let menu = Box::new(ColumnarMenu::default().with_name(MENU));
    let editor = Reedline::create()
        .with_completer(Box::new(completions))
        .with_menu(ReedlineMenu::EngineCompleter(menu))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_hinter(Box::new(Usage))
        .with_history_exclusion_prefix(Some(SECRET.to_owned()))
        .with_ansi_colors(env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
        .with_external_printer(printer);
    match history_file().and_then(|file| FileBackedHistory::with_file(HISTORY_LINES, file).ok()) {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

/// Edits a line at each prompt.
fn edit(mut editor: Reedline, mut prompts: mpsc::Receiver<String>, lines: &mpsc::Sender<io::Result<String>>) {
    while let Some(prompt) = prompts.blocking_recv() {
        let line = match editor.read_line(&Line(prompt)) {
            Ok(Signal::Success(line)) => Ok(line),
            Ok(Signal::CtrlD) => return,
            Ok(_) => Ok(String::new()),
            Err(error) => Err(error),
        };
        // A history that cannot be written ends with the shell.
        let _ = editor.sync_history();
        if lines.blocking_send(line).is_err() {
            return;
        }
    }
}

/// `$CORRAL_HISTORY`, or a file in the user's directory of states. Other users cannot read it.
fn history_file() -> Option<PathBuf> {
    let file = match env::var_os("CORRAL_HISTORY") {
        Some(file) if file.is_empty() => return None,
        Some(file) => PathBuf::from(file),
        None => {
            let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
            state.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/state")))?.join("corral/history")
        }
    };
    if file.exists() && !file.is_file() {
        return None;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(file.parent()?).ok()?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(&file).ok()?;
    Some(file)
}

/// A prompt.
struct Line(String);

impl Prompt for Line {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

/// Shows the arguments of the verb that was typed.
struct Usage;

impl Hinter for Usage {
    fn handle(&mut self, line: &str, position: usize, _: &dyn History, colors: bool, _: &str) -> String {
        let known = line.strip_suffix(' ').filter(|_| position == line.len()).and_then(verb);
        let usage = known.map_or("", |verb| verb.usage);
        if colors && !usage.is_empty() { format!("{GRAY}{usage}{PLAIN}") } else { usage.to_owned() }
    }

    /// It is not to be taken over.
    fn complete_hint(&self) -> String {
        String::new()
    }

    fn next_hint_token(&self) -> String {
        String::new()
    }
}

/// Finds verbs, options, and the paths of the session.
struct Completions {
    session: Arc<Mutex<Option<Client>>>,
    runtime: Handle,
}

impl Completions {
    /// The paths that begin with this text.
    fn paths(&self, text: &str) -> Vec<String> {
        let client = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(client) = client else { return Vec::new() };
        let (folder, begin) = text.rsplit_once('/').unwrap_or_default();
        let folder = path::or_root(folder);
        let asked = async { timeout(COMPLETED_WITHIN, client.get_children(folder, None)).await };
        let Ok(Ok((mut names, _))) = self.runtime.block_on(asked) else { return Vec::new() };
        names.retain(|name| name.starts_with(begin));
        names.sort_unstable();
        names.iter().map(|name| path::child(folder, name)).collect()
    }
}

impl Completer for Completions {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let before = line.get(..position).unwrap_or_default();
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let (word, first) = (&before[start..], before.split_whitespace().next().unwrap_or_default());
        let is_first = before[..start].trim().is_empty();
        let found: Vec<(String, Option<&str>)> = match word.chars().next() {
            _ if is_first || first == "help" => {
                VERBS.iter().map(|verb| (verb.name.to_owned(), Some(verb.about))).collect()
            }
            Some('/') => self.paths(word).into_iter().map(|path| (path, None)).collect(),
            Some('-') => {
                let options = verb(first).map_or(&[][..], |verb| verb.options);
                options.iter().map(|option| (format!("-{}", option.name), Some(option.about))).collect()
            }
            _ => Vec::new(),
        };
        let suggestion = |(value, description): (String, Option<&str>)| Suggestion {
            append_whitespace: !value.starts_with('/'),
            value,
            description: description.map(str::to_owned),
            span: Span::new(start, position),
            ..Suggestion::default()
        };
        let found: Vec<Suggestion> =
            found.into_iter().filter(|(value, _)| value.starts_with(word)).map(suggestion).collect();
        CompletionResult::fresh(found)
    }
}
