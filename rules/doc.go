// Package rules is what whoever runs a server has decided: which relays, authors, repositories and
// events are blocked, which relays are followed in any case, and how the server describes itself. A
// [Book] keeps that over restarts, and answers the questions that the parts of a server ask.
//
//	book, err := rules.Open(ctx, store, rules.Config{})
//	subject, err := rules.ParseSubject("author", "npub1...")
//	err = book.Set(ctx, rules.Rule{Action: rules.Block, Subject: subject, Reason: "spam"})
//
// The store is best one for the rules alone, which is in the backup: what else survives a restart can
// mostly be learned again, what somebody has decided can't. [Move] takes rules out of another one.
//
// A Book decides nothing by itself: it is given to [relaysync.Config] as its Rules and to
// egress.Config as its Deny, or to adapter/grasp or adapter/nostrlib/grasp, which do both. adapter/control
// has the commands that act on a change at once, for these and for who puts the parts together.
//
// Whoever does without it tells the SyncManager after each change, and removes by itself what is stored
// and is to go:
//
//	err = manager.Reconsider(ctx, rules.Lifted(subject))
//
// There is one rule for each subject. One that was set while the server ran comes before one of the
// file; what is said of an event comes before what is said of a repository, and that before what is
// said of an author.
//
// [relaysync.Config]: https://pkg.go.dev/github.com/graspsync/graspsync/sync#Config
package rules
