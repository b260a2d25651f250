// Package writebehind writes records to a [state.Store] from one goroutine: changes that may be lost a while later,
// all of them in one batch, and immediately those that a caller waits for.
//
//	b := writebehind.New(store, cfg)
//	err := b.Load(ctx, "things/", func(key string, value []byte) (there bool, err error) { ... })
//	go b.Run(ctx)
//	b.Put("things/1", value)                                             // soon; never blocks
//	err = b.Save(ctx, writebehind.Change{Key: "things/2", Value: value}) // durable when it returns
//	err = b.Flush(ctx)                                                   // at the end
//
// Failed writes are repeated. The queue is bounded, and changes beyond the bound are counted.
package writebehind
