import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { listShipped } from './shipped.mjs'

/**
 * `npm run sbom` prints the packages of the product as CycloneDX: what `npm sbom` lists, without
 * development dependencies, but with those that the dashboard's build contains.
 */
const root = fileURLToPath(new URL('..', import.meta.url))
const { packages } = JSON.parse(readFileSync(new URL('../package-lock.json', import.meta.url)))
const shipped = new Set(
  [...listShipped(packages)].map((path) => {
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    return `${name}@${packages[path].version}`
  }),
)

const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only']
const maxBuffer = 64 * 1024 * 1024
const bill = JSON.parse(execFileSync('npm', args, { cwd: root, encoding: 'utf8', maxBuffer }))
const own = bill.metadata.component['bom-ref']

const components = bill.components
  .filter(({ name, version }) => shipped.has(`${name}@${version}`))
  .map((component) => ({ ...component, properties: withoutDevelopment(component.properties) }))
const refs = new Set([own, ...components.map((component) => component['bom-ref'])])
const dependencies = bill.dependencies
  .filter(({ ref }) => refs.has(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) }))

function withoutDevelopment(properties = []) {
  return properties.filter(({ name }) => name !== 'cdx:npm:package:development')
}

process.stdout.write(`${JSON.stringify({ ...bill, components, dependencies }, null, 2)}\n`)
