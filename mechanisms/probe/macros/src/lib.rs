#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Records a span around the body of the function to which it is applied. The span is called
/// `module::function`, or `name` with `#[probed("name")]`.
///
/// The span is entered before the first statement and left when the function returns or unwinds.
///
/// # Errors
/// Does not compile on an `async fn`, whose body runs in pieces on any thread (put `span!` around
/// the pieces instead), on a `const fn`, and on anything but a function with a body.
#[proc_macro_attribute]
pub fn probed(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item).unwrap_or_else(|(message, span)| compile_error(message, span))
}

/// Message of a compile error, and its position in the source.
type CompileError = (&'static str, Span);

/// Returns the function `item` with a span at the start of its body.
fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, CompileError> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let name = function_name(&tokens)?;
    let text = span_name(arguments, &name)?;
    let body = match tokens.last() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => return Err(("#[probed] needs a function with a body", name.span())),
    };
    let guard = format!("let __handover_span = ::handover_probe::span!({text});");
    let mut inner: TokenStream =
        guard.parse().map_err(|_| ("the span's name must be a string literal", name.span()))?;
    inner.extend(body.stream());
    let mut group = Group::new(Delimiter::Brace, inner);
    group.set_span(body.span());
    tokens.pop();
    tokens.push(TokenTree::Group(group));
    Ok(tokens.into_iter().collect())
}

/// Returns the name of the function in `tokens`. Fails for other items, and for `async` and `const`
/// functions.
fn function_name(tokens: &[TokenTree]) -> Result<Ident, CompileError> {
    let mut tokens = tokens.iter();
    while let Some(token) = tokens.next() {
        let TokenTree::Ident(word) = token else { continue };
        match word.to_string().as_str() {
            "async" => {
                let why = "#[probed] on an async fn would time other tasks too: \
                           put span! around the parts between awaits";
                return Err((why, word.span()));
            }
            "const" => {
                let why = "#[probed] cannot time a const fn: the compiler may evaluate it";
                return Err((why, word.span()));
            }
            "fn" => {
                return match tokens.next() {
                    Some(TokenTree::Ident(name)) => Ok(name.clone()),
                    _ => Err(("#[probed] applies to functions only", word.span())),
                };
            }
            "struct" | "enum" | "union" | "mod" | "impl" | "trait" | "static" | "use" | "type" => {
                return Err(("#[probed] applies to functions only", word.span()));
            }
            _ => {}
        }
    }
    Err(("#[probed] applies to functions only", Span::call_site()))
}

/// Returns the source text of the span's name. This is the attribute's argument, or else an
/// expression for the function's path.
fn span_name(arguments: TokenStream, name: &Ident) -> Result<String, CompileError> {
    let mut arguments = arguments.into_iter();
    match (arguments.next(), arguments.next()) {
        (None, _) => {
            let name = name.to_string();
            let name = name.strip_prefix("r#").unwrap_or(&name);
            Ok(format!("::core::concat!(::core::module_path!(), \"::{name}\")"))
        }
        (Some(TokenTree::Literal(text)), None) if text.to_string().ends_with('"') => {
            Ok(text.to_string())
        }
        (Some(other), _) => {
            Err(("the argument of #[probed] must be a string literal", other.span()))
        }
    }
}

fn compile_error(message: &str, span: Span) -> TokenStream {
    let text = format!("::core::compile_error!({message:?});");
    let stream: TokenStream = text.parse().unwrap_or_default();
    stream
        .into_iter()
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}
