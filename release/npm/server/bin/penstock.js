#!/usr/bin/env node
// Runs the binary of this platform, which is in an optional dependency. Signals reach it, and its end is the end of this process.
'use strict'
const { spawn } = require('node:child_process')
const { constants } = require('node:os')

const name = `@penstock/server-${process.platform}-${process.arch}`
let binary
try {
  binary = require.resolve(`${name}/bin/penstock${process.platform === 'win32' ? '.exe' : ''}`)
} catch {
  console.error(`penstock: the package ${name} is not installed: install @penstock/server again, with optional dependencies, on this platform`)
  process.exit(1)
}
const child = spawn(binary, process.argv.slice(2), { stdio: 'inherit' })
// Ctrl-C reaches both processes. penstock takes the same signal within half a second as one.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']) process.on(signal, () => child.kill(signal))
child.on('error', error => {
  console.error(`penstock: ${error.message}`)
  process.exit(1)
})
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]))
