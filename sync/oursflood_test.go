package sync_test

const spam = "spam"
