// Package batchverify checks the signatures of many events at once. Its [Verifier] is the
// relaysync.Verifier that a SyncManager has by default: a batch of events with few authors
// costs a small part of what checking them one by one does, and each event still gets the
// verdict that a check of its own would give.
//
// # What is checked
//
// BIP-340 accepts a signature (r, s) of message m under public key P when
// s*G = R + e*P, where R and P are the points with the x coordinates r and P and
// an even y, and e is the tagged hash of r, P and m. For a batch, each equation
// is multiplied by a random factor a_i and all are added up:
//
//	(sum a_i*s_i)*G = sum a_i*R_i + sum (a_i*e_i)*P_i
//
// The terms of one author are summed before the multiplication, so that the
// right side has about one point an event. It is evaluated by Pippenger's
// method with signed windows.
//
// # Why that is safe
//
// If all equations hold, so does the sum: a valid signature is never refused.
// If one does not, then for any choice of the other factors at most one value of
// its factor lets the sum hold, since the group has prime order. Each factor is
// one of 2^128 different values, drawn from crypto/rand after the events are
// known and again for each batch and each part of one, so a batch that holds a
// bad signature passes with a probability of at most 2^-128. Whoever made the
// events can't know the factors, and so can't craft errors that cancel.
// The factors have the form b + c*lambda with b and c of 64 bits, where lambda*R
// comes at the cost of one multiplication; no two pairs (b, c) give the same
// factor, as the shortest vector of the lattice of such relations is longer
// than 2^126.
//
// Nothing here runs in constant time: signatures, keys and ids are public.
//
// # What is assumed
//
// The message is the event's id: that it is the hash of the event was checked
// right before, as the interface promises. An event whose id was not checked gets
// a verdict on the id, not on its contents. Ids, keys and signatures are
// lower-case hex of their exact length, the only spelling NIP-01 knows; anything
// else is refused.
//
// # Hostile input
//
// A batch with a bad signature is cut into parts. A sender could make that dear by
// putting bad signatures into every batch, so the cost of failed batches is
// paid from a bounded account, which savings refill, and when it is empty
// events are checked one by one. A call costs at most about 1.4 times its single
// checks (1.25 times where it has hundreds of events by few authors), and a long run
// of calls no more than single checks of all, give or take a fiftieth, whatever comes
// in.
package batchverify
