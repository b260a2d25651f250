// Package batchverify checks the signatures of many events together. [Verifier] is the default
// relaysync.Verifier of a SyncManager. A large batch of events with few authors costs about an
// eighth of single checks, and each event gets the verdict of a single check.
//
// # Checked equation
//
// BIP-340 accepts a signature (r, s) of message m under public key P when s*G = R + e*P, where R
// and P are the points with the x coordinates r and P and an even y, and e is the tagged hash of r,
// P and m. In a batch, each equation is multiplied by a random factor a_i and all are added:
//
//	0 = sum a_i*R_i + sum (a_i*e_i)*P_i - (sum a_i*s_i)*G
//
// The terms of one author are summed before the multiplication.
//
// # Safety
//
// If all equations hold, their sum holds, so a valid signature is never refused. If one equation is
// wrong, at most one value of its factor makes the sum hold, because the group has prime order. Each
// factor is one of 2^128 values from crypto/rand, drawn after the events are known and again for each
// batch and part. So a batch with a bad signature passes with a probability of at most 2^-128.
//
// A failed batch is divided into parts, and the events of failed parts are checked one by one, which
// costs at most about 1.5 times the single checks.
//
// The code does not run in constant time because signatures, keys and ids are public. The caller
// must have verified that the id is the hash of the event.
package batchverify
