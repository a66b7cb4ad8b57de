//! `handover serve`: pages of the stored runs, for a browser on this machine.

mod http;

use self::http::{Request, Response};
use crate::app::StoreOption;
use crate::commands::{history, names, stored};
use crate::exit::to_usage_error;
use anyhow::Context;
use clap::Args;
use handover_program::console;
use handover_report::compare::{self, Rules};
use handover_report::{Style, svg};
use handover_store::{RunRow, Store, db_option};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use subtle::ConstantTimeEq;

/// Arguments of `handover serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "The pages are a list of the runs, the report of each run, which is loaded again while the run is \
still measuring, comparisons, and the history of a figure. Anybody who has the address printed at the start, with its \
token, can read all runs. The command ends on SIGINT or SIGTERM."
)]
pub struct ServeArgs {
    /// Loopback address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Allow the pages to name and delete runs
    #[arg(long)]
    writable: bool,
    #[command(flatten)]
    db: StoreOption,
}

/// Maximum number of connections at a time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 32;
/// Interval in ns at which the loop checks for a signal.
const POLL_INTERVAL_NS: i64 = 200_000_000;
/// Maximum age of an unfinished run that counts as running.
const LIVE_AGE_MAX: Duration = Duration::from_secs(3600);
/// Width of text tables, in characters.
const TABLE_WIDTH: usize = 120;
const TABLE_STYLE: Style = Style { color: false, unicode: true, all: false };

pub fn serve(args: &ServeArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if !args.listen.ip().is_loopback() {
        return Err(to_usage_error(format!(
            "--listen {}: not a loopback address, and the pages are not encrypted; listen on 127.0.0.1, and reach it \
             from another machine through `ssh -L`",
            args.listen
        )));
    }
    drop(stored::open_existing(&args.db)?);
    let listener = TcpListener::bind(args.listen)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| {
            let address = args.listen;
            to_usage_error(format!(
                "--listen {address}: cannot listen there: {error}; select another port"
            ))
        })?;
    let address = listener.local_addr()?;
    let site = Site {
        db: &args.db,
        is_writable: args.writable,
        token: new_token().context("cannot read random bytes")?,
        address,
    };
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    writeln!(out, "http://{address}/?token={}", site.token)?;
    out.flush()?;
    let open_count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Relaxed: the flag publishes no other data.
        while !interrupted.load(Ordering::Relaxed) {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        // Descriptors run out, for example: tries again after the time limit of
                        // poll().
                        console::print_error(format_args!("cannot accept a connection: {error}"));
                    }
                    let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL_NS };
                    // An error is a signal, for which the loop checks.
                    let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&timeout));
                    continue;
                }
            };
            // Relaxed, also below: a count, which publishes nothing.
            if open_count.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            open_count.fetch_add(1, Ordering::Relaxed);
            let (site, open_count) = (&site, &open_count);
            scope.spawn(move || {
                http::serve_connection(stream, |request| site.respond(request));
                open_count.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

/// Returns a token of 128 random bits, as hexadecimal digits.
fn new_token() -> rustix::io::Result<String> {
    let mut bytes = [0; 16];
    // Never fewer bytes: the kernel returns up to 256 at once.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares two texts in a time that depends on their lengths only, so that it does not show how
/// many characters of a guess are right.
fn is_same_secret(guess: &str, secret: &str) -> bool {
    guess.as_bytes().ct_eq(secret.as_bytes()).into()
}

/// Web site of `handover serve`: its pages and its access rules.
struct Site<'a> {
    db: &'a StoreOption,
    /// `true` if the pages may name and delete runs.
    is_writable: bool,
    /// Secret that every request must contain. The first request has it in the query, and is
    /// answered with a cookie.
    token: String,
    /// Address on which the server listens.
    address: SocketAddr,
}

impl Site<'_> {
    /// Responds to a request. Checks first that the request comes from a page of this site or has
    /// the token.
    fn respond(&self, request: &Request) -> Response {
        // Checked against pages of other sites whose host name was made to resolve to this machine.
        let is_own_host = request.host == self.address.to_string()
            || request.host == format!("localhost:{}", self.address.port());
        if !is_own_host {
            return Response::error("403 Forbidden", "the request names another host");
        }
        // Browsers do not separate the cookies of different ports.
        let cookie = format!("handover-{}={}", self.address.port(), self.token);
        if request.parameter("token").is_some_and(|token| is_same_secret(token, &self.token)) {
            let cookie = format!("{cookie}; HttpOnly; SameSite=Strict; Path=/");
            return Response::see_other("/").with_header("Set-Cookie", cookie);
        }
        if request.path == "/favicon.ico" {
            return Response::error("204 No Content", "");
        }
        if !request.cookies.split("; ").any(|own| is_same_secret(own, &cookie)) {
            let text = "open the address that `handover serve` has printed, with its token";
            return Response::error("403 Forbidden", text);
        }
        // A form on another port of this host is sent with the cookie.
        let own_origin = format!("http://{}", request.host);
        if request.is_post && !request.origin.is_empty() && request.origin != own_origin {
            return Response::error("403 Forbidden", "the form is not of a page of this server");
        }
        let page = match (request.is_post, &*request.path) {
            (false, "/") => self.list_page(),
            (false, "/compare") => self.compare_page(request),
            (false, "/history") => self.history_page(request),
            (false, "/run") => self.run_page(request),
            (true, "/tag" | "/delete") if !self.is_writable => {
                let db =
                    stored::store_path(self.db).map_or_else(|_| String::new(), |it| db_option(&it));
                let text = format!(
                    "read-only; start `handover serve --writable{db}` to name and delete runs"
                );
                return Response::error("403 Forbidden", &text);
            }
            (true, "/tag") => self.change_store(|store| {
                store.add_tag(request.required("run")?, request.required("name")?)?;
                Ok(())
            }),
            (true, "/delete") => self.change_store(|store| {
                store.delete_run(request.required("run")?)?;
                Ok(())
            }),
            _ => return Response::error("404 Not Found", "no such page"),
        };
        page.unwrap_or_else(|error| Response::error("400 Bad Request", &format!("{error:#}")))
    }

    fn open_store(&self) -> anyhow::Result<Store> {
        stored::open_existing(self.db)
    }

    /// Changes the store, and redirects the browser to the list of runs.
    fn change_store(
        &self,
        change: impl FnOnce(&mut Store) -> anyhow::Result<()>,
    ) -> anyhow::Result<Response> {
        change(&mut names::open_for_writing(self.db)?)?;
        Ok(Response::see_other("/"))
    }

    /// Returns the page with the list of runs and the forms for comparisons and histories.
    fn list_page(&self) -> anyhow::Result<Response> {
        let store = self.open_store()?;
        let mut runs = store.runs()?;
        runs.reverse();
        let may_be_running = runs.iter().any(may_be_running);
        let last = runs.iter().find_map(|run| store.load_run(&run.id).ok());
        let figures = last.map_or_else(Vec::new, |last| last.records);
        let options = |texts: &mut dyn Iterator<Item = &str>| -> String {
            texts.map(|text| format!("<option value=\"{}\">", svg::escape(text))).collect()
        };
        let mut names: Vec<&str> =
            runs.iter().flat_map(|run| run.tags.iter().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        let mut sides = names.into_iter().chain(runs.iter().map(|run| run.id.as_str()));
        let mut ids: Vec<&str> = figures.iter().map(|record| record.id.as_str()).collect();
        ids.dedup();
        let rows: String = runs.iter().map(|run| self.list_row(run)).collect();
        let body = format!(
            "<h1>Runs</h1>\
             <form action=\"/compare\"><label>Compare <input name=\"a\" list=\"sides\" required></label> \
             <label>with <input name=\"b\" list=\"sides\" required></label> <button>Compare</button></form>\
             <form action=\"/history\"><label>History of <input name=\"id\" list=\"ids\" required></label> \
             <label>contender <input name=\"contender\" placeholder=\"ours\"></label> <button>Draw</button></form>\
             <datalist id=\"sides\">{}</datalist><datalist id=\"ids\">{}</datalist>\
             <table><thead><tr><th>run<th>began<th>profile<th>figures<th>host<th>names<th>command</tr></thead>\
             <tbody>{rows}</tbody></table>",
            options(&mut sides),
            options(&mut ids.into_iter()),
        );
        Ok(page("Runs", &body).refreshed_if(may_be_running))
    }

    /// Returns the row of a run in the list, as HTML.
    fn list_row(&self, run: &RunRow) -> String {
        let [id, began, profile, figures, host, names, command] =
            stored::run_cells(run).map(|text| svg::escape(&text));
        let forms = match self.is_writable {
            false => String::new(),
            true => format!(
                "<form method=\"post\" action=\"/tag\"><input type=\"hidden\" name=\"run\" value=\"{id}\">\
                 <input name=\"name\" size=\"8\" required aria-label=\"name\"> <button>Name</button></form>\
                 <form method=\"post\" action=\"/delete\"><input type=\"hidden\" name=\"run\" value=\"{id}\">\
                 <button>Delete</button></form>"
            ),
        };
        format!(
            "<tr><td><a href=\"/run?id={id}\">{id}</a><td>{began}<td>{profile}<td>{figures}<td>{host}\
             <td>{names}{forms}<td><code>{command}</code></tr>"
        )
    }

    /// Returns the report page of the run `id`. If the request has a parameter `beside`, it is
    /// compared with that run.
    fn run_page(&self, request: &Request) -> anyhow::Result<Response> {
        let selectors = [request.required("id")?].into_iter().chain(request.parameter("beside"));
        let selectors: Vec<String> = selectors.map(str::to_string).collect();
        let store = self.open_store()?;
        let report = stored::render_report(&store, &selectors)?;
        let may_be_running =
            store.runs()?.iter().any(|run| run.id == selectors[0] && may_be_running(run));
        Ok(Response::html(report).refreshed_if(may_be_running))
    }

    /// Returns the page that compares the sides `a` and `b`.
    fn compare_page(&self, request: &Request) -> anyhow::Result<Response> {
        let store = self.open_store()?;
        let [a, b] = [request.required("a")?, request.required("b")?];
        let of = |side: &str| stored::load_selected(&store, &[side.to_string()]);
        let comparison = compare::compare((a, &of(a)?), (b, &of(b)?), Rules::default());
        let text = compare::render_comparison(&comparison, TABLE_WIDTH, TABLE_STYLE);
        Ok(page("Comparison", &format!("<h1>Comparison</h1><pre>{}</pre>", svg::escape(&text))))
    }

    /// Returns the page with the history of the figure `id`.
    fn history_page(&self, request: &Request) -> anyhow::Result<Response> {
        let contender = request.parameter("contender").filter(|name| !name.is_empty());
        let id = request.required("id")?;
        let history = history::load_history(&self.open_store()?, id, contender, None, None)?;
        let text = svg::escape(&history.render_text(TABLE_WIDTH, TABLE_STYLE));
        let chart = history.chart().to_standalone_svg();
        let title = format!("History of {id}", id = svg::escape(id));
        Ok(page(&title, &format!("<h1>{title}</h1>{chart}<pre>{text}</pre>")))
    }
}

/// Returns `true` if a run is incomplete and started less than [`LIVE_AGE_MAX`] ago.
fn may_be_running(run: &RunRow) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began = Duration::from_nanos(run.started_unix_ns.try_into().unwrap_or(0));
    !run.complete && now.saturating_sub(began) < LIVE_AGE_MAX
}

/// Returns a page with a link to the list of runs; `title` and `body` are HTML.
fn page(title: &str, body: &str) -> Response {
    Response::html(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title} - handover</title>\
         <style>:root{{color-scheme:light dark}}body{{font:15px/1.5 system-ui,sans-serif;margin:1.5rem}}\
         table{{border-collapse:collapse}}td,th{{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}}\
         td:first-child{{white-space:nowrap}}\
         form{{margin:.4rem 0}}pre{{overflow-x:auto}}</style>\
         <nav><a href=\"/\">Runs</a></nav>{body}</html>"
    ))
}
