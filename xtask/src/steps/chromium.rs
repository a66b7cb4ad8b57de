//! Check of the report in a headless browser: every row must be in the rendered page, a click on a
//! figure must show its distribution, and the console must be empty.

mod driver;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::binary;
use super::prerequisites::install_debian_packages;
use crate::context::TestContext;
use crate::run::CommandLine;

/// Commands under which a browser may be installed.
const BROWSER_COMMANDS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Figure of the default run whose history is opened.
const HISTORY_ID: &str = "lock/free";

/// Maximum time for the browser to load a page.
const BROWSER_MAX: Duration = Duration::from_secs(120);

/// Browser options. The network is disabled except for the loopback address, so that a page that
/// needs it fails here.
const BROWSER_OPTIONS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
];

/// Opens the report page in a browser. Checks its rows, its console, its dialogs and its layout.
pub fn test_in_chromium(context: &mut TestContext) -> Result<()> {
    let found = || find_browser().filter(|_| CommandLine::new("chromedriver --version").succeeds());
    let browser = match found() {
        Some(browser) => browser,
        None => {
            let installed = install_debian_packages(&["chromium", "chromium-driver"]);
            let why = installed.err().map_or_else(
                || String::from("chromium or chromedriver is not installed"),
                |error| format!("{error:#}"),
            );
            let Some(browser) = found() else {
                context.record_skipped("chromium", why);
                return Ok(());
            };
            browser
        }
    };
    let ladder = binary::run_ladder(context)?;
    let ids = ladder.figure_ids()?;
    ensure!(!ids.is_empty(), "the smoke run stored no figures");
    let page = load_page(browser, &ladder.report_path(), &context.temporary)?;
    ensure!(
        page.console.is_empty(),
        "the page logs messages to the console:\n{}",
        page.console.join("\n")
    );
    let fetched = fetched_resources(&page.dom);
    ensure!(
        fetched.is_empty(),
        "the report page must be self-contained, but fetches {}",
        fetched.join(", ")
    );
    let missing = ids_without_row(&page.dom, &ids);
    ensure!(missing.is_empty(), "the report page has no row for {}", missing.join(", "));
    println!(
        "{} rows, a row for each of {} ids, and an empty console",
        rows(&page.dom).count(),
        ids.len()
    );
    let browser =
        driver::BrowserPage::start(&interactive_options(), &context.temporary.join("driven"))?;
    let mut server = ladder.start_server()?;
    let checked = check_served_pages(&browser, &mut server, &ladder);
    server.kill()?;
    server.wait()?;
    checked?;
    // Last, as it disables scripts.
    check_interaction(&browser, &ladder.report_path())
}

/// Returns the browser options for interaction with pages: without virtual time, which would
/// disturb it.
fn interactive_options() -> Vec<&'static str> {
    BROWSER_OPTIONS.into_iter().filter(|it| !it.starts_with("--virtual-time")).collect()
}

/// Opens the pages of `handover serve`: the list of runs, a comparison, a history, the report of
/// the only run, and the report of a run that has not ended.
fn check_served_pages(
    browser: &driver::BrowserPage,
    server: &mut Child,
    ladder: &binary::LadderRun,
) -> Result<()> {
    let output = server.stdout.take().context("the output of `handover serve` is not piped")?;
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address)?;
    browser.open(address.trim_end())?;
    check_script(
        browser,
        "the list has one run, and the address no token",
        "return document.querySelectorAll('tbody tr').length === 1 && !location.search.includes('token')",
    )?;
    let list = browser.run("return location.origin + '/'")?;
    let list = list.as_str().context("the list's address is not a text")?;
    let run = browser.run("return document.querySelector('tbody a').textContent")?;
    let run = run.as_str().context("the id of the run is not a text")?;
    browser.open(&format!("{list}compare?a={run}&b={run}"))?;
    check_script(
        browser,
        "the comparison of the run with itself names it",
        &format!(
            "return document.querySelector('h1').textContent === 'Comparison'
                 && document.querySelector('pre').textContent.includes('{run}')"
        ),
    )?;
    browser.open(&format!("{list}history?id={HISTORY_ID}"))?;
    check_script(
        browser,
        "the history of a figure has a chart and a table",
        &format!(
            "return document.querySelector('h1').textContent === 'History of {HISTORY_ID}'
                 && document.querySelector('svg').getBoundingClientRect().height > 50
                 && document.querySelector('pre').textContent.trim() !== ''"
        ),
    )?;
    browser.open(list)?;
    browser.click("tbody a")?;
    wait_for_script(
        browser,
        "the link has opened a report",
        "return document.readyState === 'complete' && location.pathname === '/run'",
    )?;
    check_script(
        browser,
        "the link opens the report, whose script and style are applied",
        "return document.querySelectorAll('tr[data-figure]').length > 5
             && document.documentElement.classList.contains('with-script')
             && getComputedStyle(document.body).backgroundColor !== 'rgba(0, 0, 0, 0)'",
    )?;
    let mut run = ladder.start_run()?;
    let checked = check_unfinished_run(browser, list);
    run.kill()?;
    run.wait()?;
    checked?;
    let console = browser.take_console_messages()?;
    ensure!(console.is_empty(), "the browser console is not empty:\n{}", console.join("\n"));
    println!("the served list, comparison and history open, and the list's link opens the report");
    Ok(())
}

/// Opens the report of the run that has just begun, and checks that it shows further figures
/// without being opened again. `list` is the address of the list, to which the run adds its row.
fn check_unfinished_run(browser: &driver::BrowserPage, list: &str) -> Result<()> {
    let until = Instant::now() + BROWSER_MAX;
    while browser.run("return document.querySelectorAll('tbody tr').length")? != json!(2) {
        ensure!(Instant::now() < until, "the list does not show the new run after {BROWSER_MAX:?}");
        std::thread::sleep(Duration::from_millis(100));
        browser.open(list)?;
    }
    browser.click("tbody a")?;
    let rows = "document.querySelectorAll('tr[data-figure]').length";
    wait_for_script(
        browser,
        "the report of the new run is open",
        &format!("return location.pathname === '/run' && {rows} > 0"),
    )?;
    let first = browser.run(&format!("return {rows}"))?;
    wait_for_script(
        browser,
        "the page of the unfinished run shows further figures",
        &format!("return {rows} > {first}"),
    )
}

/// Runs a script in the page until it returns `true`; returns an error if it does not in time.
/// `what` describes the condition.
fn wait_for_script(browser: &driver::BrowserPage, what: &str, script: &str) -> Result<()> {
    let until = Instant::now() + BROWSER_MAX;
    while browser.run(script)? != Value::Bool(true) {
        ensure!(Instant::now() < until, "not true after {BROWSER_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a script in the page; returns an error unless the script returns `true`. `what` describes
/// the checked condition.
fn check_script(browser: &driver::BrowserPage, what: &str, script: &str) -> Result<()> {
    let said = browser.run(script)?;
    ensure!(said == Value::Bool(true), "the check failed: {what}; its script returned {said}");
    Ok(())
}

/// Clicks and types in the report page, and checks its reactions.
fn check_interaction(browser: &driver::BrowserPage, report: &Path) -> Result<()> {
    let began = Instant::now();
    browser.open(&format!("file://{}", report.display()))?;
    println!("the page opens in {} ms", began.elapsed().as_millis());
    let is = |what: &str, script: &str| check_script(browser, what, script);
    is("no dialog is open at first", "return !document.querySelector('dialog').open")?;
    browser.click("section[aria-labelledby=ladder] figure.wide svg text.name")?;
    is(
        "a click on the name of a figure shows its distribution",
        "const dialog = document.querySelector('dialog[open]');
         const name = document.querySelector('figure.wide svg text.name').textContent;
         return dialog.querySelectorAll('svg path.joined').length > 0
             && name.startsWith(dialog.querySelector('h2').textContent)
             && dialog.querySelectorAll('tbody tr').length > 0",
    )?;
    let title = "return document.querySelector('dialog h2').textContent";
    let first = browser.run(title)?;
    browser.press(RIGHT_KEY)?;
    ensure!(browser.run(title)? != first, "the right arrow key does not show the next figure");
    browser.press(ESCAPE_KEY)?;
    is("Escape closes the dialog", "return !document.querySelector('dialog').open")?;
    browser.press("/lock")?;
    let seen = "[...document.querySelectorAll('tr[data-figure]')].filter((row) => !row.hidden)";
    is(
        "the filter leaves only matching rows, on the ladder too",
        &format!(
            "const seen = {seen}; return seen.length > 0 && document.querySelector('.veil.drawn') !== null
                 && seen.every((row) => row.textContent.toLowerCase().includes('lock'))"
        ),
    )?;
    browser.press(ESCAPE_KEY)?;
    browser.click("table.figures thead th:nth-child(2) button")?;
    is(
        "a click on a column's header sorts",
        "const figures = JSON.parse(document.getElementById('data').textContent).figures;
         const medians = [...document.querySelectorAll('tr[data-figure]')]
             .map(({ dataset }) => figures[dataset.figure].rows[dataset.row].median);
         return medians.length > 5 && medians.every((it, at) => at === 0 || medians[at - 1] <= it)",
    )?;
    let paper = "return getComputedStyle(document.body).backgroundColor";
    let before = browser.run(paper)?;
    browser.click("header .tools button")?;
    ensure!(browser.run(paper)? != before, "the theme button does not change the page's colour");
    check_other_media(browser, report)?;
    let console = browser.take_console_messages()?;
    ensure!(console.is_empty(), "the browser console is not empty:\n{}", console.join("\n"));
    println!(
        "checked: clicks, keys, filter, sorting, themes, a phone's screen, print, and without scripts"
    );
    Ok(())
}

/// JavaScript that lists the elements beyond the right edge of the window or of the open dialog.
const BEYOND_EDGE_SCRIPT: &str = "const dialog = document.querySelector('dialog[open]');
     const edge = dialog ? dialog.getBoundingClientRect().right : document.documentElement.clientWidth;
     return [...(dialog ?? document.body).querySelectorAll('*')]
         .filter((it) => it.getBoundingClientRect().right > edge + 1)
         .map((it) => `${it.tagName} ${it.className} ${it.textContent.slice(0, 30)}`)";

/// Checks the report page on a phone's screen, in print, and without scripts.
fn check_other_media(browser: &driver::BrowserPage, report: &Path) -> Result<()> {
    let is = |what: &str, script: &str| check_script(browser, what, script);
    let nothing_beyond = |what: &str| -> Result<()> {
        let beyond = browser.run(BEYOND_EDGE_SCRIPT)?;
        ensure!(beyond == json!([]), "{what}: elements extend beyond the window: {beyond}");
        Ok(())
    };
    let window = |width: u32, height: u32, mobile: bool| {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        browser.send_command("Emulation.setDeviceMetricsOverride", &metrics)
    };
    window(390, 844, true)?;
    browser.open(&format!("file://{}", report.display()))?;
    browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })")?;
    nothing_beyond("the page on a phone")?;
    is(
        "median, p99 and rate of a row share a line on a phone",
        "const row = document.querySelector('table.figures tr[data-figure]');
         const tops = ['figure', 'p99', 'rate']
             .map((label) => row.querySelector(`td[data-label=${label}]`))
             .filter((cell) => cell.getClientRects().length > 0)
             .map((cell) => cell.getBoundingClientRect().top);
         return tops.length > 1 && tops.every((top) => Math.abs(top - tops[0]) < 2)",
    )?;
    browser.click("tr[data-figure] code")?;
    is(
        "a touched row opens a dialog that fits",
        "const box = document.querySelector('dialog[open]').getBoundingClientRect();
         return box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight",
    )?;
    nothing_beyond("the dialog on a phone")?;
    browser.run("const it = document.querySelector('dialog'); it.scrollTop = it.scrollHeight")?;
    is(
        "the dialog's buttons are visible and wide enough for a finger",
        "const [dialog, ...buttons] = ['dialog', 'dialog nav button:first-child', 'dialog nav button:last-child']
             .map((it) => document.querySelector(it).getBoundingClientRect());
         return buttons.every((it) => it.top >= dialog.top && it.right <= dialog.right && it.width >= 44)",
    )?;
    browser.run("document.querySelector('dialog nav button:last-child').click()")?;
    is("a button closes the dialog", "return !document.querySelector('dialog').open")?;

    // The area inside the margins of A4.
    window(718, 1040, false)?;
    browser.send_command("Emulation.setEmulatedMedia", &json!({"media": "print"}))?;
    browser.open(&format!("file://{}", report.display()))?;
    nothing_beyond("the page on paper")?;
    is(
        "paper has the ladder and the table, and no buttons",
        "const seen = (it) => document.querySelector(it).getBoundingClientRect().height > 0;
         return seen('figure.wide svg') && seen('table.figures') && !seen('.tools') && !seen('.scripted')",
    )?;
    browser.send_command("Emulation.setEmulatedMedia", &json!({"media": ""}))?;

    browser.send_command("Emulation.setScriptExecutionDisabled", &json!({"value": true}))?;
    browser.open(&format!("file://{}", report.display()))?;
    is(
        "the page has its tables without its script",
        "return !document.documentElement.classList.contains('with-script')
             && document.querySelectorAll('table.figures tr[data-figure]').length > 5
             && document.querySelectorAll('table.contenders tr').length > 5
             && document.querySelector('.tools') === null",
    )
}

/// WebDriver key code of the Escape key.
const ESCAPE_KEY: &str = "\u{e00c}";
/// WebDriver key code of the right arrow key.
const RIGHT_KEY: &str = "\u{e014}";

/// Returns the first installed browser of [`BROWSER_COMMANDS`].
fn find_browser() -> Option<&'static str> {
    BROWSER_COMMANDS.into_iter().find(|name| CommandLine::new(name).args(["--version"]).succeeds())
}

/// Report page after the browser has loaded it and run its scripts.
struct LoadedPage {
    /// HTML after the scripts have run.
    dom: String,
    /// Messages on the console of the browser.
    console: Vec<String>,
}

/// Loads a page in a browser without a window.
fn load_page(browser: &str, file: &Path, temporary: &Path) -> Result<LoadedPage> {
    ensure!(file.exists(), "the smoke run wrote no {}", file.display());
    let run = CommandLine::new(browser)
        .args(BROWSER_OPTIONS)
        .args([format!("--user-data-dir={}", temporary.join("browser").display())])
        .args(["--dump-dom".to_owned(), format!("file://{}", file.display())])
        .timeout(BROWSER_MAX);
    println!("$ {run}");
    let output = run.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{browser} failed ({}): {stderr}", output.status);
    Ok(LoadedPage {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: console_messages(&stderr),
    })
}

/// Returns the page's console messages from the browser's log.
fn console_messages(stderr: &str) -> Vec<String> {
    stderr.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

/// Returns the resources that the page loads. A report must load none.
fn fetched_resources(dom: &str) -> Vec<String> {
    let sources =
        dom.split(" src=\"").skip(1).chain(dom.split("<link").skip(1).filter_map(|link| {
            let tag = link.split('>').next()?;
            tag.split_once("href=\"").map(|(_, target)| target)
        }));
    let targets = sources.map(|rest| rest.split('"').next().unwrap_or_default());
    targets.filter(|target| !target.starts_with("data:")).map(str::to_owned).collect()
}

/// Returns the HTML of each table row of the page.
fn rows(dom: &str) -> impl Iterator<Item = &str> {
    dom.split("<tr").skip(1).map(|row| row.split("</tr").next().unwrap_or_default())
}

/// Returns the ids that no table row of the page contains.
fn ids_without_row(dom: &str, ids: &BTreeSet<String>) -> Vec<String> {
    let escaped = |id: &str| id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let seen = |id: &str| rows(dom).any(|row| row.contains(&escaped(id)));
    ids.iter().filter(|id| !seen(id)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_row_is_found() {
        let dom = "<p>clock/now</p><table><tr class=a><td>lock/busy</td></tr><tr></tr></table>";
        let ids = BTreeSet::from(["lock/busy", "clock/now"].map(str::to_owned));
        assert_eq!(ids_without_row(dom, &ids), ["clock/now"]);
        assert_eq!(rows(dom).count(), 2);
    }

    #[test]
    fn external_resource_is_found() {
        let dom = "<img src=\"data:image/png;base64,x\"><a href=\"https://a.b/\">a</a>\
            <script src=\"https://a.b/c.js\"></script><link rel=\"icon\" href=\"c.png\">";
        assert_eq!(fetched_resources(dom), ["https://a.b/c.js", "c.png"]);
    }

    #[test]
    fn only_console_lines_of_the_page_count() {
        let stderr = "[1:2:0101/000000.0:ERROR:bus.cc(408)] Failed to connect to the bus\n\
            [1:2:0101/000000.0:INFO:CONSOLE:3] \"Uncaught ReferenceError\", source: file:///r (3)\n\
            12 bytes written\n";
        let found = console_messages(stderr);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("ReferenceError"));
    }
}
