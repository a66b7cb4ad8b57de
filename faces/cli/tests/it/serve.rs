//! `handover serve`, as a browser uses it.

use crate::common::{Home, Running, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A server in the background, with the address that it has printed.
struct Site<'a> {
    server: Running<'a>,
    host: String,
    token: String,
}

impl<'a> Site<'a> {
    fn start(home: &'a Home, options: &[&'a str]) -> Self {
        let words = ["serve"].into_iter().chain(options.iter().copied());
        let server = home.start(home.handover(words));
        let mut line = String::new();
        wait_until("the address of the pages", || {
            line = fs::read_to_string(home.path().join("out")).expect("a file");
            line.ends_with('\n')
        });
        let (host, token) = line.trim_end().split_once("/?token=").expect("an address and a token");
        let host = host.strip_prefix("http://").expect("an address").to_string();
        Self { server, host, token: token.to_string() }
    }

    /// Sends bytes, and returns the response.
    fn exchange(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).expect("connect to the server");
        stream.write_all(request.as_bytes()).expect("send the request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("read the response");
        response
    }

    fn cookie(&self) -> String {
        let port = self.host.rsplit(':').next().expect("a port");
        format!("handover-{port}={}", self.token)
    }

    /// Loads a page with the cookie.
    fn get(&self, target: &str) -> String {
        let (host, cookie) = (&self.host, self.cookie());
        self.exchange(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n"))
    }

    /// Sends a form with the cookie.
    fn post(&self, target: &str, form: &str) -> String {
        self.post_from(&format!("http://{}", self.host), target, form)
    }

    /// Sends a form of a page of another server with the cookie.
    fn post_from(&self, origin: &str, target: &str, form: &str) -> String {
        let (host, cookie, length) = (&self.host, self.cookie(), form.len());
        self.exchange(&format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\n\
             Content-Length: {length}\r\n\r\n{form}"
        ))
    }

    /// Ends the server as a terminal does.
    fn stop(self) {
        self.server.signal(Signal::INT);
        self.server.finish().code(0);
    }
}

#[track_caller]
fn assert_status(response: &str, status: &str) {
    assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{response}");
}

/// A home with two runs of one benchmark; returns their ids.
fn home_with_runs() -> (Home, Vec<String>) {
    let home = Home::new();
    for name in ["before", "after"] {
        home.ok(&format!("run clock/now --profile smoke --no-report --name {name}"));
    }
    let ids =
        home.runs().iter().map(|run| run["id"].as_str().expect("an id").to_string()).collect();
    (home, ids)
}

#[test]
fn pages_show_runs_reports_comparisons_and_histories() {
    let (home, ids) = home_with_runs();
    let site = Site::start(&home, &[]);
    let list = site.get("/");
    assert_status(&list, "200 OK");
    for text in ids.iter().map(String::as_str).chain(["before", "after", "clock/now"]) {
        assert!(list.contains(text), "{text} is not in the list: {list}");
    }
    assert!(!list.contains("Delete") && !list.contains("\r\nRefresh:"), "{list}");
    let report = site.get(&format!("/run?id={}&beside={}", ids[1], ids[0]));
    assert_status(&report, "200 OK");
    assert!(report.contains("clock/now") && report.contains("</html>"), "{report}");
    let comparison = site.get("/compare?a=before&b=after");
    assert_status(&comparison, "200 OK");
    assert!(comparison.contains("clock/now"), "{comparison}");
    let history = site.get("/history?id=clock%2Fnow&contender=");
    assert_status(&history, "200 OK");
    assert!(history.contains("<svg") && history.contains("History of clock/now"), "{history}");
    assert_status(&site.get("/run?id=nosuch"), "400 Bad Request");
    assert_status(&site.get("/compare?a=before"), "400 Bad Request");
    assert_status(&site.get("/nosuch"), "404 Not Found");
    site.stop();
}

#[test]
fn requests_without_the_token_or_for_another_host_are_refused() {
    let (home, _ids) = home_with_runs();
    let site = Site::start(&home, &[]);
    let (host, token) = (&site.host, &site.token);
    let refused = site.exchange(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_status(&refused, "403 Forbidden");
    assert!(!refused.contains("before"), "{refused}");
    let wrong = "0".repeat(token.len());
    let wrong = site.exchange(&format!("GET /?token={wrong} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_status(&wrong, "403 Forbidden");
    let foreign =
        site.exchange(&format!("GET /?token={token} HTTP/1.1\r\nHost: example.org\r\n\r\n"));
    assert_status(&foreign, "403 Forbidden");
    let right = site.exchange(&format!("GET /?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_status(&right, "303 See Other");
    assert!(right.contains(&site.cookie()) && right.contains("SameSite=Strict"), "{right}");
    assert_status(&site.exchange("\u{0}rubbish\r\n\r\n"), "400 Bad Request");
    // A connection that sends nothing does not keep others waiting.
    let _idle = TcpStream::connect(host).expect("connect to the server");
    assert_status(&site.get("/"), "200 OK");
    site.stop();
}

#[test]
fn runs_are_named_and_deleted_only_if_writable() {
    let (home, ids) = home_with_runs();
    let site = Site::start(&home, &[]);
    let name = format!("run={}&name=first+one", ids[0]);
    assert_status(&site.post("/delete", &format!("run={}", ids[0])), "403 Forbidden");
    assert_status(&site.post("/tag", &name), "403 Forbidden");
    site.stop();
    assert_eq!(home.runs().len(), 2);
    let site = Site::start(&home, &["--writable"]);
    assert!(site.get("/").contains("Delete"));
    assert_status(&site.post("/tag", &format!("run={}&name=first", ids[0])), "303 See Other");
    assert!(site.get("/").contains("first"));
    assert_status(&site.post("/tag", &format!("run={}&name=", ids[0])), "400 Bad Request");
    for origin in ["http://127.0.0.1:1", "null", "https://example.org"] {
        let refused = site.post_from(origin, "/delete", &format!("run={}", ids[0]));
        assert_status(&refused, "403 Forbidden");
    }
    assert_status(&site.post("/delete", &format!("run={}", ids[0])), "303 See Other");
    site.stop();
    let left = home.runs();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["id"], ids[1].as_str());
}

#[test]
fn other_addresses_than_loopback_and_a_missing_store_are_refused() {
    let (home, _ids) = home_with_runs();
    home.run("serve --listen 0.0.0.0:0").code(2).tells(&["--listen 0.0.0.0:0", "ssh -L"]);
    home.run("serve --listen here").code(2).tells(&["--listen"]);
    home.run("serve --db none.db").code(2).tells(&["none.db"]);
    let site = Site::start(&home, &[]);
    let taken = format!("serve --listen {}", site.host);
    home.run(&taken).code(2).tells(&["--listen", "select another port"]);
    site.stop();
}
