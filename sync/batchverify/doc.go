// Package batchverify checks the signatures of many events together. [Verifier] is the default
// relaysync.Verifier of a SyncManager. A batch of events with few authors costs a small part of
// single checks, and each event gets the verdict of a single check.
//
// # Checked equation
//
// BIP-340 accepts a signature (r, s) of message m under public key P when s*G = R + e*P, where R
// and P are the points with the x coordinates r and P and an even y, and e is the tagged hash of r,
// P and m. In a batch, each equation is multiplied by a random factor a_i and all are added:
//
//	(sum a_i*s_i)*G = sum a_i*R_i + sum (a_i*e_i)*P_i
//
// The terms of one author are summed before the multiplication, so the right side has about one
// point per event. It is evaluated by Pippenger's method with signed windows.
//
// # Safety
//
// If all equations hold, their sum holds, so a valid signature is never refused. If one equation is
// wrong, then for any values of the other factors at most one value of its factor makes the sum
// hold, because the group has prime order. Each factor is one of 2^128 values from crypto/rand.
// Factors are drawn after the events are known, and again for each batch and each part, so a batch
// with a bad signature passes with a probability of at most 2^-128. The author of the events cannot
// predict the factors and cannot construct errors that cancel.
//
// A factor has the form b + c*lambda with b and c of 64 bits, because lambda*R costs one
// multiplication. No two pairs (b, c) give the same factor, because the shortest vector of the
// lattice of such relations is longer than 2^126.
//
// The code does not run in constant time because signatures, keys and ids are public.
//
// # Assumptions
//
// The message is the event's id. The caller must have verified that the id is the hash of the
// event. Otherwise the verdict applies to the id and not to the contents. Ids, keys and signatures
// must be lower-case hex of their exact length, as in NIP-01.
//
// # Hostile input
//
// A batch with a bad signature is divided into parts. A sender could make this expensive with a bad
// signature in every batch. So failed batches are paid from a bounded account, which savings
// refill. If it is empty, events are checked one by one. A call costs at most about 1.4 times its
// single checks (1.25 times for hundreds of events by few authors). A long run of calls costs at
// most 2 % more than single checks.
package batchverify
