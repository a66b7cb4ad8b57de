//! The scheduler at work: clients with a mailbox each, one arbiter thread that alone owns the
//! algorithm, and what the packets leave by.
