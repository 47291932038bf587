import { fail, toMessages, onStopSignal } from '../../core/lib/process.ts'
import { unknownSettings } from '../../core/lib/names/unknown-settings.ts'
import { startService } from './service.ts'
import { welcome } from './welcome.ts'

/**
 * `npm start`: the whole service in one process, with the external parts that the environment
 * names.
 */
// Ignore the error when the reader of our output ends before this process.
process.stdout.on('error', () => {})
for (const line of unknownSettings(process.env)) warn(line)
const service = await startService(process.env).catch((error: unknown) => fail(toMessages(error)))
process.stdout.write(welcome(service))
for (const line of service.warnings) warn(line)
onStopSignal(async () => {
  process.stdout.write('\nStopping after the running requests.\n')
  await service.stop()
})

function warn(line: string): void {
  process.stderr.write(`tollgate: warning: ${line}\n`)
}
