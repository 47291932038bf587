import { AssertionError } from 'node:assert/strict'
import { parentPort, workerData } from 'node:worker_threads'
import { installSourceMutation, sourceMutations } from './source-mutations.ts'

/**
 * Runs the check of a defect in a separate thread, with the defect in the code that the thread
 * loads.
 */
const name = String(workerData)
const mutation = sourceMutations[name]
if (!mutation) throw new Error(`no defect "${name}"`)
installSourceMutation(mutation)
const { checks } = await import('./checks.ts')

async function isFound(): Promise<boolean> {
  try {
    await checks[name]?.()
    return false
  } catch (error) {
    if (error instanceof AssertionError) return true
    throw error
  }
}

parentPort?.postMessage(await isFound(), [])
