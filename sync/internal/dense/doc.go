// Package dense keeps what there is very much of by small numbers, in a fraction of the room
// that maps take, and so that it never takes long to add one more: nothing is moved because
// it has grown.
package dense
