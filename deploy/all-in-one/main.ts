import { readEnvironment } from '../../core/lib/settings/environment.ts'
import { fail, toMessages, onStopSignal } from '../../core/lib/process.ts'
import { onReloadSignal } from '../../core/lib/settings/reload.ts'
import { unknownSettings } from '../../core/lib/settings/unknown.ts'
import { startService } from './service.ts'
import { welcome } from './welcome.ts'

/**
 * `npm start`: the whole service in one process, with the external parts that the environment
 * names.
 */
// Ignore the error when the reader of our output ends before this process.
process.stdout.on('error', () => {})
const setReload = onReloadSignal()
for (const line of unknownSettings(process.env)) warn(line)
const service = await readEnvironment(process.env)
  .then(({ env }) => startService(env))
  .catch((error: unknown) => fail(toMessages(error)))
const { reloading } = service
setReload({
  ...reloading,
  read: async () => reloading.read((await readEnvironment(process.env)).env),
})
process.stdout.write(welcome(service))
for (const line of service.warnings) warn(line)
onStopSignal(async () => {
  process.stdout.write('\nStopping after the running requests.\n')
  await service.stop()
})

function warn(line: string): void {
  process.stderr.write(`tollgate: warning: ${line}\n`)
}
