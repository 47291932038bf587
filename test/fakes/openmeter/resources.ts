import { type Reply, problem } from './api-v1.ts'
import { type FakeCustomer, type FakeFeature, type FakeMeter, type State, ulid } from './state.ts'

/** Resources that both versions of the API create, each in its own form. */

const now = (): string => new Date().toISOString()

type New<Resource> = Omit<Resource, 'id' | 'createdAt'>

function created<Resource>(
  list: Resource[],
  resource: Resource,
  show: (resource: Resource) => unknown,
): Reply {
  list.push(resource)
  return { status: 201, body: show(resource) }
}

export function createMeter(
  { meters }: State,
  meter: New<FakeMeter>,
  show: (meter: FakeMeter) => unknown,
): Reply {
  if (meters.some(({ key }) => key === meter.key))
    return problem(409, 'a meter with this key exists')
  return created(meters, { id: ulid(), ...meter, createdAt: now() }, show)
}

/** Creates a feature of a meter, which must exist. */
export function createFeature(
  { meters, features }: State,
  feature: New<FakeFeature>,
  show: (feature: FakeFeature) => unknown,
): Reply {
  if (features.some(({ key }) => key === feature.key))
    return problem(409, 'a feature with this key exists')
  if (!meters.some(({ id }) => id === feature.meterId))
    return problem(400, 'there is no such meter')
  return created(features, { id: ulid(), ...feature, createdAt: now() }, show)
}

export function createCustomer(
  { customers }: State,
  customer: New<FakeCustomer>,
  show: (customer: FakeCustomer) => unknown,
): Reply {
  const exists = customers.some(
    ({ key, subjects }) =>
      key === customer.key || subjects.some((subject) => customer.subjects.includes(subject)),
  )
  if (exists) return problem(409, 'a customer with this key or subject exists')
  return created(customers, { id: ulid(), ...customer, createdAt: now() }, show)
}
