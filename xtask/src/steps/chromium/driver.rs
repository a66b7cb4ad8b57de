//! Browser control by the WebDriver protocol of the W3C, as far as the report's checks need it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

/// Maximum time for chromedriver to start listening, and to respond to a request.
const DRIVER_MAX: Duration = Duration::from_secs(60);

/// Page in a browser that chromedriver controls. Browser and driver are terminated on drop.
pub struct BrowserPage {
    driver: Child,
    port: u16,
    session: String,
}

impl BrowserPage {
    /// Starts chromedriver and, with these options, a browser.
    pub fn start(options: &[&str], profile: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start chromedriver")?;
        let mut driven = Self { driver, port, session: String::new() };
        let until = Instant::now() + DRIVER_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(Instant::now() < until, "chromedriver does not listen after {DRIVER_MAX:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let profile = format!("--user-data-dir={}", profile.display());
        let options: Vec<&str> = options.iter().copied().chain([profile.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": options},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let begun = driven.request("POST", "/session", &wanted)?;
        driven.session = begun["sessionId"]
            .as_str()
            .context("the new WebDriver session has no sessionId")?
            .to_owned();
        Ok(driven)
    }

    /// Opens `url`.
    pub fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({"url": url})).map(drop)
    }

    /// Runs `script` in the page and returns its result.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Clicks the centre of the first element that `selector` matches, as a mouse does.
    pub fn click(&self, selector: &str) -> Result<()> {
        let middle = format!(
            "const it = document.querySelector({}); it.scrollIntoView({{block: 'center'}});
            const box = it.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2].map(Math.round);",
            json!(selector)
        );
        let at = self.run(&middle).with_context(|| format!("no element matches {selector}"))?;
        let pointer = json!({"type": "pointer", "id": "mouse", "actions": [
            {"type": "pointerMove", "duration": 0, "x": at[0], "y": at[1]},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]});
        self.post("/actions", &json!({"actions": [pointer]})).map(drop)
    }

    /// Presses keys, one after another.
    pub fn press(&self, keys: &str) -> Result<()> {
        let both = |key: char| {
            ["keyDown", "keyUp"].map(|what| json!({"type": what, "value": key.to_string()}))
        };
        let presses: Vec<Value> = keys.chars().flat_map(both).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": presses});
        self.post("/actions", &json!({"actions": [keyboard]})).map(drop)
    }

    /// Sends a command of Chromium's own DevTools protocol, for operations that WebDriver lacks.
    pub fn send_command(&self, command: &str, params: &Value) -> Result<()> {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": params})).map(drop)
    }

    /// Returns the console messages since the last call.
    pub fn take_console_messages(&self) -> Result<Vec<String>> {
        let messages = self.post("/se/log", &json!({"type": "browser"}))?;
        let messages = messages.as_array().context("the browser's log is not a JSON list")?;
        Ok(messages.iter().map(|it| it["message"].to_string()).collect())
    }

    /// Sends a command of the browser's session, with `body` as parameters.
    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.request("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Sends an HTTP request to chromedriver and returns the `value` of its JSON response.
    fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(DRIVER_MAX))?;
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        let response = read_response(&mut BufReader::new(stream))
            .with_context(|| format!("the WebDriver command {path} failed"))?;
        let mut response: Value = serde_json::from_str(&response)?;
        let value = response["value"].take();
        match value.get("error") {
            Some(error) => {
                bail!(
                    "the WebDriver command {path} failed: {error}: {message}",
                    message = value["message"]
                )
            }
            None => Ok(value),
        }
    }
}

impl Drop for BrowserPage {
    fn drop(&mut self) {
        // The browser ends with its session; without a session, it ends with the driver.
        let _ = self.request("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Reads the body of an HTTP response, which must have a Content-Length.
fn read_response(stream: &mut impl BufRead) -> Result<String> {
    let mut length = None;
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line)? > 0, "the HTTP response ends within its header");
        let Some((name, value)) = line.trim_end().split_once(':') else {
            if line.trim_end().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<u64>()?);
        }
    }
    let mut body = String::new();
    stream
        .take(length.context("the HTTP response has no Content-Length")?)
        .read_to_string(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_ends_at_its_content_length() {
        let mut stream =
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx: y\r\n\r\n{\"a\"rest".as_bytes();
        assert_eq!(read_response(&mut stream).unwrap(), "{\"a\"");
        assert!(read_response(&mut "HTTP/1.1 200 OK\r\n\r\n{}".as_bytes()).is_err());
        assert!(read_response(&mut "HTTP/1.1 200 OK\r\n".as_bytes()).is_err());
    }
}
