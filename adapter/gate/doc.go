// Package gate stands between clients and a relay's websocket. Relays are made for clients that
// mean well: khatru has a goroutine for each message, waits for whoever does not read, and parses
// what a stranger wrote with code that panics or allocates what a message claims. One key, or none,
// is enough to end such a server.
//
//	http.Serve(listener, gate.New(relay, gate.Config{}))
//
// A Gate takes websockets in itself and hands on to the relay, over a pipe, what it has read and
// found to be a message of NIP-01, NIP-42, NIP-45 or NIP-77, written anew. Of each connection it
// lets in what the relay has time for; it takes everything that the relay writes at once, and hangs
// up on whoever does not read it, and says why. What is stored waits for whoever has asked for it
// ([Gate.Pace]). Room that strangers share is shared by client. The names of
// subscriptions are the gate's own on the relay's side: one that is opened again replaces the one
// before, as NIP-01 has it, whatever the relay does. What several filters of one subscription find
// comes once.
//
// Of a khatru relay the gate keeps the subscriptions itself, and has the relay's hooks asked as khatru does: khatru holds what is
// published against each value of each filter, and goes through these without the lock under which they come
// and go. Hooks may be added afterwards, and none taken away; those of connections hear of one more, which is
// the gate's, from 127.0.0.1. Where several relays of a [khatru.Router] are paced, or the relay is another one, it has the
// subscriptions: then one may get an event twice, or not, while another one is opened or closed. [Gate.Collector] has metrics.
//
// What is no websocket passes; a request that manages the relay (NIP-86) has a bounded body.
package gate
