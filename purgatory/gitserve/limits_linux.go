package gitserve

// memoryLimit is what has a shell bound the memory of what it starts, in KiB.
const memoryLimit = `ulimit -v "$3" && `
