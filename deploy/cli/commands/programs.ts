import { once } from 'node:events'
import { signerDoubleHelp } from '../../signer-double/help.ts'
import type { Command } from '../command.ts'

// These commands are whole programs. Each is loaded when it runs, because it imports much.

export const start: Command = {
  summary: 'runs the whole service in one process (npm start)',
  help: {
    usages: [
      {
        syntax: 'tollgate start',
        text:
          'Runs core, gateway and sidecar in this process. Settings come from the environment; `tollgate config` ' +
          'lists them.',
      },
    ],
  },
  run: async () => {
    await import('../../all-in-one/main.ts')
    // The service ends by a signal.
    await once(process, 'exit')
    return 0
  },
}

export const demo: Command = {
  summary: 'plays the whole story against a running service (npm run demo)',
  help: {
    usages: [
      {
        syntax: 'tollgate demo [--pause MS]',
        text:
          "Plays the product's main story against the all-in-one service of this folder: a user is provisioned, a " +
          'remote signer (a double that speaks the real protocol) asks before it signs, the Starter allowance is ' +
          'used up, the next call is refused, a credit lets it go on, and at the end usage, balance and tickets are ' +
          'compared to the last digit.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [['--pause MS', 'Milliseconds between two payments; 120 by default.']],
      },
    ],
  },
  run: async (argv) => (await import('../../demo/demo.ts')).runDemo(argv),
}

export const signerDouble: Command = {
  summary: 'plays a remote signer: asks the sidecar, signs, emits events',
  help: signerDoubleHelp,
  run: async (argv) => (await import('../../signer-double/cli.ts')).runSignerDouble([...argv]),
}
