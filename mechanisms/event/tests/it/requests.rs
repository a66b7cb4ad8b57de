//! Requests and replies: to threads, and to machines.

use handover_event::{
    Config, Context, Machine, NoReplyError, Reply, ReplyError, SendError, handler,
};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a thread to begin its wait, on most machines.
const SOON: Duration = Duration::from_millis(20);

/// Request to square a number; without a number, to drop the reply.
type Square = (Option<u32>, Reply<u32>);

fn server() -> Machine<impl handover_event::Handler<Message = Square> + Send> {
    let square = |(number, reply): Square, _cx: &mut Context<'_, Square>| {
        if let Some(number) = number {
            reply.send(number * number).expect("the requester waits");
        }
    };
    Machine::new(handler(square), Config::default()).expect("a valid configuration")
}

#[test]
fn reply_ends_the_wait_of_the_requester() {
    let server = server();
    let address = server.address().clone();
    let running = server.spawn(thread::Builder::new()).expect("a thread");
    for number in 0..100 {
        let pending = address.request(|reply| (Some(number), reply)).expect("send a request");
        assert_eq!(pending.wait(), Ok(number * number));
    }
    let pending = address.request(|reply| (None, reply)).expect("send a request");
    assert_eq!(pending.wait(), Err(NoReplyError));
    running.stop();
    running.join().1.expect("the run");
}

#[test]
fn sleeping_requester_is_woken_by_the_reply_and_by_its_drop() {
    for reply_with in [Some(1), None] {
        let (reply, pending) = Reply::pair();
        let replier = thread::spawn(move || {
            thread::sleep(SOON);
            reply_with.map(|number| reply.send(number))
        });
        assert_eq!(pending.wait().ok(), reply_with);
        assert_eq!(replier.join().expect("the replier"), reply_with.map(|_| Ok(())));
    }
}

#[test]
fn timed_wait_ends_in_time_and_a_reply_is_received_once() {
    let (reply, mut pending) = Reply::pair();
    let start = Instant::now();
    assert_eq!(pending.wait_timeout(SOON), Ok(None));
    assert!(start.elapsed() >= SOON);
    assert_eq!(pending.try_wait(), Ok(None));
    reply.send(1).expect("the requester waits");
    assert_eq!(pending.wait_timeout(Duration::MAX), Ok(Some(1)));
    assert_eq!(pending.wait_timeout(Duration::ZERO), Err(NoReplyError));
    assert_eq!(pending.try_wait(), Err(NoReplyError));

    let (reply, mut pending) = Reply::pair();
    reply.send(2).expect("the requester waits");
    assert_eq!(pending.try_wait(), Ok(Some(2)));
    let (reply, mut pending) = Reply::<u32>::pair();
    drop(reply);
    assert_eq!(pending.try_wait(), Err(NoReplyError));
}

#[test]
fn reply_returns_if_the_requester_has_given_up_and_is_dropped_if_not_received() {
    let (reply, pending) = Reply::pair();
    drop(pending);
    assert_eq!(reply.send("late"), Err(ReplyError::Closed("late")));

    let held = Arc::new(());
    let (reply, pending) = Reply::pair();
    reply.send(Arc::clone(&held)).expect("the requester waits");
    assert_eq!(Arc::strong_count(&held), 2);
    drop(pending);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn request_to_a_machine_that_ends_gets_no_reply() {
    let server = server();
    let address = server.address().clone();
    let pending = address.request(|reply| (Some(1), reply)).expect("send a request");
    drop(server);
    assert_eq!(pending.wait(), Err(NoReplyError));
    let refused = address.request(|reply| (Some(2), reply)).map(|_pending| ());
    let Err(SendError::Closed((number, reply))) = refused else { panic!("sent: {refused:?}") };
    assert_eq!(number, Some(2));
    assert_eq!(reply.send(4), Err(ReplyError::Closed(4)), "its requester was told of the error");
}

/// Machine that keeps the replies that it gets.
fn client(inbox_messages_max: u32) -> Machine<super::api::Keeper<Result<u32, NoReplyError>>> {
    let config = Config::default().inbox_messages_max(inbox_messages_max);
    Machine::new(super::api::Keeper(Vec::new()), config).expect("a valid configuration")
}

#[test]
fn reply_or_its_absence_arrives_at_the_requesting_machine() {
    let (mut server, mut client) = (server(), client(8));
    for number in [Some(2), None, Some(3)] {
        let reply = Reply::to_machine(client.address(), |reply| reply);
        server.address().send((number, reply)).expect("send a request");
    }
    server.poll().expect("run the server");
    let reply = Reply::to_machine(client.address(), |reply| reply);
    server.address().send((Some(4), reply)).expect("send a request");
    drop(server);
    client.poll().expect("run the client");
    assert_eq!(client.handler().0, [Ok(4), Err(NoReplyError), Ok(9), Err(NoReplyError)]);
}

#[test]
fn full_or_closed_machine_refuses_a_reply() {
    let client = client(1);
    let [first, second, third] = [(); 3].map(|()| Reply::to_machine(client.address(), |it| it));
    assert_eq!(first.send(1), Ok(()));
    assert_eq!(second.send(2), Err(ReplyError::Refused));
    assert_eq!(client.stats().refused, 1);
    drop(client);
    assert_eq!(third.send(3), Err(ReplyError::Refused));
}

#[test]
fn dropped_reply_does_not_block_on_a_full_machine() {
    let when_full = handover_event::WhenFull::Block { wait_max: std::time::Duration::MAX };
    let config = Config::default().inbox_messages_max(1).when_full(when_full);
    let client = Machine::new(super::api::Keeper(Vec::new()), config).expect("valid");
    let [first, second] =
        [(); 2].map(|()| Reply::<u32>::to_machine(client.address(), |reply| reply));
    drop(first);
    drop(second); // waits for ever if it blocks
    assert_eq!((client.stats().waiting, client.stats().refused), (1, 1));
}
