//! Tests of machines that send to themselves, to each other and by a topic.

use handover_event::{Config, EndReason, HandlerTable};
use handover_suite::event::drive::*;
use std::thread;

/// Policy that sends the first hello and answers every hello.
struct FirstHelloSender;

impl ReplyPolicy for FirstHelloSender {
    fn start_actions(&mut self) -> StartActions {
        StartActions { sends_first_hello: true, ..StartActions::default() }
    }

    fn received(&mut self, _: u64) -> Reaction {
        Reaction::Answer
    }
}

#[test]
fn single_machine_handles_each_of_its_own_messages() {
    for via in [SendMethod::Call, SendMethod::Pass] {
        let mut machine =
            new_self_sender(via, LimitedAnswers::new(1000), Config::default()).expect("a machine");
        machine.context().send_quiet(SelfMessage::Hello(1)).expect("room");
        assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
        assert_eq!(machine.stats().handled, 1000);
        assert_eq!(machine.stats().waiting, 1, "the last answer is not in the inbox");
    }
}

#[test]
fn two_machines_answer_each_other_until_one_stops() {
    let policies = [LimitedAnswers::new(100), LimitedAnswers::new(u64::MAX)];
    let [mut first, second] = new_pair(policies, Config::default()).expect("machines");
    second.address().send(MachineMessage::Hello { from: 0, number: 1 }).expect("room");
    let second = second.spawn(thread::Builder::new()).expect("a thread");
    for handled in [100, 200] {
        first.handler_mut().policy.left = 100;
        assert_eq!(first.run().expect("runs"), EndReason::Stopped);
        assert_eq!(first.stats().handled, handled);
    }
    second.stop();
    let (second, ended) = second.join();
    assert_eq!(ended.expect("runs"), EndReason::Stopped);
    assert!((200..=201).contains(&second.stats().handled), "{second:?}");
}

/// Policy that sends the first hello if `sends_first_hello`, and answers every hello.
struct EndlessAnswers {
    sends_first_hello: bool,
}

impl ReplyPolicy for EndlessAnswers {
    fn start_actions(&mut self) -> StartActions {
        StartActions { sends_first_hello: self.sends_first_hello, ..StartActions::default() }
    }

    fn received(&mut self, _: u64) -> Reaction {
        Reaction::Answer
    }
}

/// Fails unless two machines that look up the last of `ids_count` handlers answer each other 100
/// times.
fn check_exchange_by_id<L: HandlerLookup<EndlessAnswers> + Send + 'static>(ids_count: usize) {
    let policies =
        [EndlessAnswers { sends_first_hello: false }, EndlessAnswers { sends_first_hello: true }];
    let [mut first, second] =
        new_pair_by_id::<EndlessAnswers, L>(policies, ids_count, Config::default())
            .expect("machines");
    let second = second.spawn(thread::Builder::new()).expect("a thread");
    while first.stats().handled < 100 {
        assert_eq!(first.run_once().expect("it runs").end_reason, None);
    }
    second.stop();
    let (second, ended) = second.join();
    assert_eq!(ended.expect("runs"), EndReason::Stopped);
    assert!(second.stats().handled >= 99, "{:?}", second.stats());
    assert_eq!(first.stats().unhandled + second.stats().unhandled, 0);
}

#[test]
fn two_machines_answer_each_other_with_either_handler_lookup() {
    for ids_count in [1, 2, 20] {
        check_exchange_by_id::<HandlerTable<KindPartner<EndlessAnswers>, KindMessage>>(ids_count);
        check_exchange_by_id::<LinearHandlerTable<KindPartner<EndlessAnswers>, KindMessage>>(
            ids_count,
        );
    }
}

#[test]
fn server_answers_all_clients_on_their_own_threads() {
    let clients = (0..5).map(|_| FirstHelloSender);
    let (mut server, clients) =
        new_server_with_clients(LimitedAnswers::new(1000), clients, Config::default())
            .expect("machines");
    let clients: Vec<_> = clients
        .into_iter()
        .map(|client| client.spawn(thread::Builder::new()).expect("a thread"))
        .collect();
    assert_eq!(server.run().expect("runs"), EndReason::Stopped);
    assert_eq!(server.stats().handled, 1000);
    let mut answers = 0;
    for client in clients {
        client.stop();
        let (client, _) = client.join();
        answers += client.stats().handled + client.stats().waiting;
    }
    assert_eq!(answers, 1000);
}

#[test]
fn equal_shares_stop_with_the_answer_that_completes_the_last_share() {
    let mut policy = EqualShares::default();
    for _ in 0..2 {
        policy.start(2, 3);
        for from in [0, 0, 2, 0, 0, 1, 2, 2] {
            assert_eq!(policy.received_from(from, 1), Reaction::Answer);
        }
        assert_eq!(policy.received_from(1, 1), Reaction::AnswerAndStop);
    }
}

#[test]
fn server_stops_when_each_client_has_its_share() {
    let clients = (0..5).map(|_| FirstHelloSender);
    let mut policy = EqualShares::default();
    policy.start(100, 5);
    let (mut server, clients) =
        new_server_with_clients(policy, clients, Config::default()).expect("machines");
    let clients: Vec<_> = clients
        .into_iter()
        .map(|client| client.spawn(thread::Builder::new()).expect("a thread"))
        .collect();
    assert_eq!(server.run().expect("runs"), EndReason::Stopped);
    let mut answers = 0;
    for client in clients {
        client.stop();
        let (client, _) = client.join();
        let received = client.stats().handled + client.stats().waiting;
        assert!(received >= 100, "{received}");
        answers += received;
    }
    assert_eq!(answers, server.stats().handled);
}

#[test]
fn every_subscriber_answers_every_post() {
    let subscribers = (0..5).map(|_| FirstHelloSender);
    let (mut announcer, subscribers) =
        new_topic_server_with_clients(LimitedAnswers::new(100), subscribers, Config::default())
            .expect("machines");
    let subscribers: Vec<_> = subscribers
        .into_iter()
        .map(|one| one.spawn(thread::Builder::new()).expect("a thread"))
        .collect();
    assert_eq!(announcer.run().expect("runs"), EndReason::Stopped);
    assert_eq!(announcer.stats().handled, 500, "answers of five subscribers to each post");
    for one in subscribers {
        one.stop();
        let (one, _) = one.join();
        assert_eq!(one.stats().handled + one.stats().waiting, 100);
    }
}
