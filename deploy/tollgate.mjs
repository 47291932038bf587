#!/usr/bin/env node
// The tollgate command. Runs the setup on the machine's Node, and then main.ts on a Node that
// can run it: this one, or the one among the dependencies.

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import * as modules from 'node:module'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { explain, nodeMajor, pinnedNode, setup } from './setup.mjs'

const script = fileURLToPath(import.meta.url)
const root = dirname(dirname(script))
const FORWARDED = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT']

try {
  await setup(root)
} catch (error) {
  process.stderr.write(`tollgate: ${explain(error)}\n`)
  process.exit(1)
}

if (nodeMajor() >= 24) {
  // Cache the compiled code of hundreds of files, so that types are not stripped at each call.
  modules.enableCompileCache(join(root, 'node_modules', '.cache', 'tollgate'))
  const { main } = await import('./main.ts')
  process.exitCode = await main(process.argv.slice(2))
} else if (existsSync(pinnedNode(root))) {
  runPinned()
}

/** Runs the command on the pinned Node, with the same terminal and signals, and exits like it. */
function runPinned() {
  const child = spawn(pinnedNode(root), [script, ...process.argv.slice(2)], { stdio: 'inherit' })
  for (const signal of FORWARDED) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C and Ctrl-\ to both; twice would mean "at once".
      const fromTerminal = process.stdin.isTTY && (signal === 'SIGINT' || signal === 'SIGQUIT')
      if (!fromTerminal) child.kill(signal)
    })
  }
  child.on('error', (error) => {
    process.stderr.write(`tollgate: cannot run ${pinnedNode(root)}: ${error.message}\n`)
    process.exit(1)
  })
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code)
    for (const name of FORWARDED) process.removeAllListeners(name)
    process.kill(process.pid, signal)
    // Signals that Node itself handles may leave this process alive.
    setTimeout(() => process.exit(128 + constants.signals[signal]), 1_000)
  })
}
