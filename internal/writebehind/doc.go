// Package writebehind writes to a [state.Store] a while later, several values at once, and at
// once what somebody waits for. It is the home of that: who has records to keep tells a
// [Buffer] which of them have changed, each with a function that makes the record when it is
// written, so that many changes are one write.
//
//	b := writebehind.New(store, cfg)
//	err := b.Load(ctx, "things/", func(key string, value []byte) (there bool, err error) { ... })
//	go b.Run(ctx)
//	b.Put("things/1", value)                                      // soon; never blocks
//	err = b.Save(ctx, writebehind.Change{Key: "things/2", Value: value}) // durable when it returns
//	err = b.Flush(ctx)                                            // all of it, at the end
//
// What fails is written again later. What waits is bounded, and what is beyond the bound is
// counted.
package writebehind
